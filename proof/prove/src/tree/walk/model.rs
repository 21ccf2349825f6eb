//! The possible states of the store: every case that the commands so far allow.
//!
//! A command takes effect in one or two steps between its start and its end. The model cannot
//! observe when, so it keeps all cases: for each pending command the steps that it may have
//! taken. The result of a command rules cases out. A killed command rules none out, because it
//! may or may not have taken effect. If no case is left, no order of the commands explains
//! what the tool did.

use super::output::{Shown, VerbOutcome, VerbRefusal};
use super::verbs::{Name, Verb};
use super::versions::{ContentNumber, Versions};
use crate::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Number of processes that work in parallel.
pub(super) const WORKERS: usize = 2;

/// A tree in one case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModelTree {
    pub generation: u64,
    /// The content of the last commit.
    pub durable: ContentNumber,
    /// The content with uncommitted changes, if there are any.
    pub open: Option<ContentNumber>,
    /// Whether no run or mount may change the tree.
    pub protected: bool,
    /// The worker that has mounted the tree, and the content of the mount.
    pub mount: Option<(usize, ContentNumber)>,
}

impl ModelTree {
    pub(super) fn live(&self) -> ContentNumber {
        self.open.unwrap_or(self.durable)
    }

    /// Returns the state that `list` prints.
    pub(super) fn state(&self) -> &'static str {
        match (self.mount, self.open) {
            (Some(_), _) => "in use",
            (None, Some(_)) => "open",
            (None, None) => "committed",
        }
    }
}

/// The trees at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TreesModel {
    pub trees: BTreeMap<Name, ModelTree>,
}

/// The progress of a pending command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CommandProgress {
    /// The command has neither taken effect nor read anything.
    Waiting,
    /// The command has read this content of its first tree, at this generation.
    Read(ContentNumber, u64),
    /// The command has read both of its trees.
    Both(ContentNumber, ContentNumber),
    /// The command has written the first of two records. Only a kill leaves this state.
    Half,
    /// The command has taken effect.
    Done,
    /// The command has seen these trees, which it lists or which make it refuse.
    Seen(TreesModel),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    pub world: TreesModel,
    pub progress: [CommandProgress; WORKERS],
}

struct Pending {
    verb: Verb,
    /// Commands of the other worker that ran at the same time.
    concurrent: Vec<Verb>,
}

/// All cases that are possible.
pub(super) struct Model {
    pub versions: Versions,
    cases: BTreeSet<Case>,
    pending: [Option<Pending>; WORKERS],
}

impl Model {
    /// Returns the model of an empty store.
    pub(super) fn new(versions: Versions) -> Self {
        let nothing = Case {
            world: TreesModel::default(),
            progress: [const { CommandProgress::Waiting }; WORKERS],
        };
        Self { versions, cases: BTreeSet::from([nothing]), pending: [None, None] }
    }

    /// Returns the worlds that are possible now.
    pub(super) fn worlds(&self) -> BTreeSet<&TreesModel> {
        self.cases.iter().map(|case| &case.world).collect()
    }

    /// Starts a command of `worker`.
    pub(super) fn begin(&mut self, worker: usize, verb: Verb) {
        let other = &mut self.pending[1 - worker];
        let concurrent = other.as_ref().map(|other| other.verb).into_iter().collect();
        if let Some(other) = other {
            other.concurrent.push(verb);
        }
        self.pending[worker] = Some(Pending { verb, concurrent });
    }

    /// Ends the command of `worker` with `outcome`. Returns whether some case explains the
    /// outcome; if none does, the cases stay as they were.
    pub(super) fn end(&mut self, worker: usize, outcome: &VerbOutcome) -> Result<bool> {
        self.take_steps()?;
        let Some(Pending { verb, concurrent }) = self.pending[worker].take() else {
            return Ok(true);
        };
        let explains = |case: &Case| match outcome {
            VerbOutcome::Killed => true,
            VerbOutcome::Refused(why) => is_refused(case, worker, verb, &concurrent, *why),
            VerbOutcome::Done(shown) => self.is_done(case, worker, verb, &concurrent, shown),
        };
        let mut left: BTreeSet<Case> =
            self.cases.iter().filter(|case| explains(case)).cloned().collect();
        if left.is_empty() {
            return Ok(false);
        }
        left = left.into_iter().map(|case| case.with(worker, CommandProgress::Waiting)).collect();
        self.cases = left;
        self.forget()?;
        Ok(true)
    }

    /// Records that `worker` has changed the content of its mount of `tree`.
    pub(super) fn edited(&mut self, worker: usize, tree: Name, seed: u64) -> Result<()> {
        let mut edited = BTreeSet::new();
        for mut case in std::mem::take(&mut self.cases) {
            if let Some(ModelTree { mount: Some((by, content)), .. }) =
                case.world.trees.get_mut(tree)
                && *by == worker
            {
                *content = self.versions.altered(*content, seed)?;
            }
            edited.insert(case);
        }
        self.cases = edited;
        Ok(())
    }

    /// Adds the cases in which pending commands have taken further steps.
    fn take_steps(&mut self) -> Result<()> {
        let mut new: Vec<Case> = self.cases.iter().cloned().collect();
        while let Some(case) = new.pop() {
            for worker in 0..WORKERS {
                let Some(Pending { verb, .. }) = self.pending[worker] else { continue };
                let next = case.step(worker, verb, &mut self.versions)?;
                for next in next.into_iter().chain(case.look(worker)) {
                    if self.cases.insert(next.clone()) {
                        new.push(next);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_done(
        &self,
        case: &Case,
        worker: usize,
        verb: Verb,
        concurrent: &[Verb],
        shown: &Shown,
    ) -> bool {
        let content = |version| self.versions.content(version);
        match (&case.progress[worker], shown) {
            (CommandProgress::Read(version, _), Shown::Content(found)) => {
                content(*version) == found
            }
            (CommandProgress::Both(one, other), Shown::Changes(found)) => {
                super::output::changes(content(*one), content(*other)) == *found
            }
            (CommandProgress::Seen(world), Shown::Trees(listed)) => {
                let in_use = |name: Name| concurrent.iter().any(|verb| verb.uses() == Some(name));
                listed.len() == world.trees.len()
                    && world.trees.iter().all(|(name, tree)| {
                        listed.iter().any(|one| {
                            let is_used = one.state == "in use" && in_use(name);
                            one.name == *name
                                && one.generation == tree.generation
                                && (one.state == tree.state() || is_used)
                        })
                    })
            }
            (CommandProgress::Seen(world), Shown::OneLayer) => {
                let is_closed = |tree: &ModelTree| tree.open.is_none() && tree.mount.is_none();
                verb.names().iter().all(|name| world.trees.get(name).is_some_and(is_closed))
            }
            (progress, Shown::Nothing) => *progress == CommandProgress::Done || verb.is_idle(),
            _ => false,
        }
    }

    /// Drops the contents that no case contains.
    fn forget(&mut self) -> Result<()> {
        let mut wanted = BTreeSet::new();
        for case in &self.cases {
            for tree in case.world.trees.values() {
                wanted.extend([tree.durable, tree.live()]);
                wanted.extend(tree.mount.map(|(_, content)| content));
            }
            for progress in &case.progress {
                match progress {
                    CommandProgress::Read(one, _) => wanted.extend([*one]),
                    CommandProgress::Both(one, other) => wanted.extend([*one, *other]),
                    _ => {}
                }
            }
        }
        self.versions.keep(&wanted)
    }
}

impl Verb {
    /// Whether the command has no effect and shows nothing of a tree.
    fn is_idle(self) -> bool {
        matches!(self, Self::Verify(_) | Self::Fsck | Self::Gc)
    }
}

/// Whether `verb` can be refused for the reason `why`.
fn is_refused(
    case: &Case,
    worker: usize,
    verb: Verb,
    concurrent: &[Verb],
    why: VerbRefusal,
) -> bool {
    let CommandProgress::Seen(world) = &case.progress[worker] else { return false };
    let tree = |name: Name| world.trees.get(name);
    match why {
        VerbRefusal::Absent(name) => tree(name).is_none(),
        VerbRefusal::Exists(name) => tree(name).is_some(),
        VerbRefusal::Open(name) => tree(name).is_some_and(|tree| tree.open.is_some()),
        VerbRefusal::Protected(name) => tree(name).is_some_and(|tree| tree.protected),
        VerbRefusal::InUse(name) => {
            tree(name).is_some_and(|tree| tree.mount.is_some())
                || concurrent.iter().any(|verb| verb.uses() == Some(name))
        }
        VerbRefusal::Changed(name) => {
            // No other command changes a tree while a run uses it.
            let can_be =
                matches!(verb, Verb::Commit(_) | Verb::CommitAs(..) | Verb::Becomes { .. });
            can_be && concurrent.iter().any(|verb| verb.names().contains(&name))
        }
        VerbRefusal::NotMounted => match verb {
            Verb::Umount { tree: name, .. } => {
                tree(name).is_none_or(|tree| tree.mount.is_none_or(|(by, _)| by != worker))
            }
            _ => true,
        },
    }
}
