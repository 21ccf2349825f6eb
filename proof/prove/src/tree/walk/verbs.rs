//! The actions of the two processes. A seed alone chooses the verbs, the changes and the
//! kills; the results have no influence on the choice.

use super::alter;
use crate::Result;
use std::path::Path;

/// The name of a tree.
pub(super) type Name = &'static str;
/// Few names, so that the processes often use the same tree.
pub(super) const NAMES: [Name; 4] = ["a", "b", "c", "d"];
/// Minimum duration of a run's command.
const SPREAD: u64 = 25;

/// A verb and its trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Import(Name),
    Clone(Name, Name),
    Run {
        tree: Name,
        seed: u64,
    },
    /// `run --from FROM --commit TO`.
    Becomes {
        from: Name,
        to: Name,
        seed: u64,
    },
    /// `run --from FROM --discard`.
    Discards {
        from: Name,
        seed: u64,
    },
    Commit(Name),
    CommitAs(Name, Name),
    Squash(Name),
    Protect(Name),
    Unprotect(Name),
    /// `discard`.
    Revert(Name),
    Rename(Name, Name),
    Remove(Name),
    /// `remove --force`.
    Force(Name),
    Mount(Name),
    Umount {
        tree: Name,
        keep: bool,
    },
    /// `mount --read-only`; the process reads the mount and unmounts it.
    Look(Name),
    Export(Name),
    Diff(Name, Name),
    Verify(Name),
    List,
    Fsck,
    Gc,
}

/// How a verb that makes a clone copies the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloneWay {
    /// By the store's own strategy.
    Default,
    /// By `--strategy copy`.
    Copy,
}

/// The next action of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// A single command.
    One { verb: Verb, way: CloneWay, disturbance: Disturbance },
    /// A mount, changes in the mount, and its end. Each of the two commands may be killed.
    Mounted { tree: Name, keep: bool, seed: u64, kills: [Option<u64>; 2] },
}

/// A disturbance of a command while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    None,
    /// Kills the command; this seed selects how.
    Kill(u64),
    /// Delays each open of a directory, so that other commands change what the command reads.
    Slow,
}

impl From<Option<u64>> for Disturbance {
    fn from(kill: Option<u64>) -> Self {
        kill.map_or(Self::None, Self::Kill)
    }
}

fn kill(random: &mut fastrand::Rng) -> Option<u64> {
    let seed = random.u64(..);
    (random.u8(..10) < 6).then_some(seed)
}

impl NextAction {
    /// Returns a random next action.
    pub(super) fn random(random: &mut fastrand::Rng) -> Self {
        let mut name = || NAMES[random.usize(..NAMES.len())];
        let (one, other) = (name(), name());
        let seed = random.u64(1..1 << 48);
        let verb = match random.u8(..100) {
            0..20 => Verb::Run { tree: one, seed },
            20..34 => Verb::Commit(one),
            34..45 if one != other => Verb::Clone(one, other),
            45..50 => Verb::Becomes { from: one, to: one, seed },
            50..55 => Verb::Becomes { from: one, to: other, seed },
            55..60 if one != other => Verb::CommitAs(one, other),
            60..64 => Verb::Squash(one),
            64..67 => Verb::Force(one),
            67 | 68 => Verb::Remove(one),
            69..73 => Verb::Import(one),
            73 => Verb::Protect(one),
            74 | 75 => Verb::Unprotect(one),
            76 | 77 => Verb::Revert(one),
            78 | 79 => Verb::Rename(one, other),
            80 => Verb::Discards { from: one, seed },
            81..84 => Verb::Export(one),
            84 => Verb::Look(one),
            85..88 => Verb::Diff(one, other),
            88 => Verb::Verify(one),
            89 => Verb::List,
            90 | 91 => Verb::Fsck,
            92 => Verb::Gc,
            _ => {
                let (keep, kills) = (random.u8(..4) > 0, [kill(random), kill(random)]);
                return Self::Mounted { tree: one, keep, seed, kills };
            }
        };
        let way = if random.u8(..6) == 0 { CloneWay::Copy } else { CloneWay::Default };
        let (kill, is_slow) = (kill(random), random.bool());
        let disturbance = if is_slow && verb.reads() { Disturbance::Slow } else { kill.into() };
        Self::One { verb, way, disturbance }
    }
}

impl Verb {
    /// Returns the arguments after `tree --store DIR`. `out` is a new directory, `point` a
    /// mount point.
    pub(super) fn words(
        self,
        way: CloneWay,
        source: &Path,
        out: &Path,
        point: &Path,
    ) -> Result<Vec<String>> {
        let path = |path: &Path| path.display().to_string();
        let words: Vec<&str> = match self {
            Self::Import(name) => vec!["import", name],
            Self::Clone(base, name) => vec!["clone", base, name],
            Self::Run { tree, .. } => vec!["run", tree],
            Self::Becomes { from, to, .. } => vec!["run", "--from", from, "--commit", to],
            Self::Discards { from, .. } => vec!["run", "--from", from, "--discard"],
            Self::Commit(name) => vec!["commit", name],
            Self::CommitAs(name, new) => vec!["commit", name, "--as", new],
            Self::Squash(name) => vec!["squash", name],
            Self::Protect(name) => vec!["protect", name],
            Self::Unprotect(name) => vec!["unprotect", name],
            Self::Revert(name) => vec!["discard", name],
            Self::Rename(name, new) => vec!["rename", name, new],
            Self::Remove(name) => vec!["remove", name],
            Self::Force(name) => vec!["remove", "--force", name],
            Self::Mount(name) => vec!["mount", name],
            Self::Umount { keep: true, .. } => vec!["umount"],
            Self::Umount { keep: false, .. } => vec!["umount", "--discard"],
            Self::Look(name) => vec!["mount", "--read-only", name],
            Self::Export(name) => vec!["export", name],
            Self::Diff(one, other) => vec!["diff", one, other],
            Self::Verify(name) => vec!["verify", name],
            Self::List => vec!["list", "--json"],
            Self::Fsck => vec!["fsck"],
            Self::Gc => vec!["gc"],
        };
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        match self {
            Self::Import(_) => words.push(path(source)),
            Self::Mount(_) | Self::Umount { .. } | Self::Look(_) => words.push(path(point)),
            Self::Export(_) => words.push(path(out)),
            _ => {}
        }
        let has_copies = matches!(
            self,
            Self::Import(_)
                | Self::Clone(..)
                | Self::Run { .. }
                | Self::Becomes { .. }
                | Self::Discards { .. }
        );
        if way == CloneWay::Copy && has_copies {
            words.splice(1..1, ["--strategy".to_owned(), "copy".to_owned()]);
        }
        if let Self::Run { seed, .. } | Self::Becomes { seed, .. } | Self::Discards { seed, .. } =
            self
        {
            let own = std::env::current_exe()?;
            let bind = format!("{}:{}:ro", own.display(), super::super::fixture::PROGRAM);
            words.extend(["--bind".to_owned(), bind, "--".to_owned()]);
            words.extend(alter::words(seed, SPREAD));
        }
        Ok(words)
    }

    /// Returns the approximate duration in milliseconds, from which the time of a kill is
    /// chosen.
    pub(super) fn span(self) -> u64 {
        match self {
            Self::Run { .. } | Self::Becomes { .. } | Self::Discards { .. } => 160,
            Self::Import(_) | Self::Squash(_) | Self::Export(_) => 120,
            Self::Commit(_) | Self::CommitAs(..) | Self::Umount { .. } => 80,
            _ => 40,
        }
    }

    /// Returns the trees that the verb names.
    pub(super) fn names(self) -> Vec<Name> {
        match self {
            Self::Clone(one, other)
            | Self::CommitAs(one, other)
            | Self::Rename(one, other)
            | Self::Diff(one, other)
            | Self::Becomes { from: one, to: other, .. } => vec![one, other],
            Self::Import(name)
            | Self::Commit(name)
            | Self::Squash(name)
            | Self::Protect(name)
            | Self::Unprotect(name)
            | Self::Revert(name)
            | Self::Remove(name)
            | Self::Force(name)
            | Self::Mount(name)
            | Self::Look(name)
            | Self::Export(name)
            | Self::Verify(name)
            | Self::Run { tree: name, .. }
            | Self::Umount { tree: name, .. }
            | Self::Discards { from: name, .. } => vec![name],
            Self::List | Self::Fsck | Self::Gc => Vec::new(),
        }
    }

    /// Returns the trees whose content or state may change.
    pub(super) fn changes(self) -> Vec<Name> {
        match self {
            Self::Clone(_, name) | Self::Becomes { to: name, .. } => vec![name],
            Self::Mount(_)
            | Self::Look(_)
            | Self::Export(_)
            | Self::Diff(..)
            | Self::Verify(_)
            | Self::Discards { .. } => Vec::new(),
            _ => self.names(),
        }
    }

    /// Whether the verb reads the whole content of a tree.
    fn reads(self) -> bool {
        matches!(self, Self::Export(_) | Self::Diff(..) | Self::Verify(_) | Self::Fsck)
    }

    /// Returns the tree that is in use while the verb runs.
    pub(super) fn uses(self) -> Option<Name> {
        match self {
            Self::Run { tree: name, .. }
            | Self::Squash(name)
            | Self::Mount(name)
            | Self::Umount { tree: name, .. } => Some(name),
            _ => None,
        }
    }

    /// Returns the tree under whose name an interruption of the verb is reported.
    pub(super) fn reported(self) -> Option<Name> {
        match self {
            Self::Import(name)
            | Self::Squash(name)
            | Self::Mount(name)
            | Self::Look(name)
            | Self::Run { tree: name, .. }
            | Self::Becomes { from: name, .. }
            | Self::Discards { from: name, .. } => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_steps() {
        let steps = |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..300).map(|_| NextAction::random(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(steps(5), steps(5));
        assert_ne!(steps(5), steps(6));
        let verbs = steps(5).into_iter().filter_map(|step| match step {
            NextAction::One { verb, .. } => {
                Some(format!("{verb:?}").split(['(', ' ']).next()?.to_owned())
            }
            NextAction::Mounted { .. } => None,
        });
        assert!(verbs.collect::<std::collections::BTreeSet<_>>().len() >= 20);
    }
}
