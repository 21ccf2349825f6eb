//! The workloads. Most are perl scripts, because every Debian has perl and a preload affects
//! it.

mod random;
mod real;

use crate::Result;
pub(crate) use random::{Perform, ProgramKind, Programs, perform};
pub(crate) use real::{Real, is_installed};
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Duration;
use synconce_testkit::patiently;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// What a package manager does, in small.
    Files,
    /// Leaves a daemon behind, which syncs after the run has ended.
    Daemon,
    /// Asks for a commit in the middle.
    Checkpoint,
    /// Syncs a file whose syncs are real by `--except`, then works on.
    Excepted,
    /// The workload `Files` of another user, below a root without CAP_SYS_PTRACE.
    OtherUser,
    /// The workload `Files` on two disks at the same time.
    TwoDisks,
    /// tar unpacks files and syncs none.
    Unpack,
    /// Hundreds of random programs at a time.
    Random(Programs),
    /// A program of everyday use.
    Real(Real),
}

const FILES: &str = include_str!("work/files.pl");
/// What the daemon writes, and the workloads `Checkpoint` and `Excepted` in the middle.
pub(crate) const DURABLE: &str = "durable\n";
const LINES: usize = 900;
const NOBODY: u32 = 65534;

impl Work {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Files => "files".to_owned(),
            Self::Daemon => "daemon".to_owned(),
            Self::Checkpoint => "commit in the middle".to_owned(),
            Self::Excepted => "--except, a real sync in the middle".to_owned(),
            Self::OtherUser => "files of another user, no CAP_SYS_PTRACE".to_owned(),
            Self::TwoDisks => "files on two disks".to_owned(),
            Self::Unpack => "tar x, 600 files".to_owned(),
            Self::Random(programs) => programs.name(),
            Self::Real(real) => real.name().to_owned(),
        }
    }

    /// Returns why the workload cannot run here.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Real(real) => real.missing(),
            _ => None,
        }
    }

    /// Returns the size of the disk in bytes.
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::Real(real) => real.size(),
            _ => 384 << 20,
        }
    }

    /// Returns a time limit far above what the workload takes.
    pub(crate) fn limit(self) -> Duration {
        patiently(match self {
            Self::Real(_) => Duration::from_secs(1200),
            _ => Duration::from_secs(120),
        })
    }

    /// Whether its recording takes so much memory that only one fits at a time.
    pub(crate) fn is_big(self) -> bool {
        matches!(self, Self::Real(_))
    }

    /// Returns the minimum number of recorded runs, which also run all parts of the workload.
    pub(crate) fn recordings(self) -> usize {
        /// One recorded run with each background load.
        const RECORDINGS: usize = 4;
        match self {
            Self::Random(programs) => RECORDINGS.max(programs.batches()),
            Self::Real(_) => 2,
            _ => RECORDINGS,
        }
    }

    /// Returns the part of the workload for recorded run number `round`.
    pub(crate) fn part(self, round: u64) -> Self {
        match self {
            Self::Random(programs) => {
                let batch = round as usize % programs.batches().max(1);
                Self::Random(Programs { batch, ..programs })
            }
            _ => self,
        }
    }

    /// Prepares the tree before the run.
    pub(crate) fn prepare(self, tree: &Path) -> Result<()> {
        match self {
            Self::Random(programs) => return programs.prepare(tree),
            Self::Real(real) => return real.prepare(tree),
            Self::Unpack => return Ok(()),
            Self::Files
            | Self::Daemon
            | Self::Checkpoint
            | Self::Excepted
            | Self::OtherUser
            | Self::TwoDisks => {}
        }
        for i in 0..20 {
            fs::write(tree.join(format!("old{i}")), format!("old {i}\n").repeat(300))?;
            fs::write(tree.join(format!("gone{i}")), format!("gone {i}\n"))?;
        }
        if self == Self::OtherUser {
            for entry in fs::read_dir(tree)? {
                chown(entry?.path(), Some(NOBODY), None)?;
            }
            chown(tree, Some(NOBODY), None)?;
        }
        Ok(())
    }

    /// Whether the workload makes a call that is held.
    pub(crate) fn asks_for_syncs(self) -> bool {
        !matches!(self, Self::Unpack | Self::Real(Real::Untar))
    }

    /// Returns the command line. `control` is not on the disk under test; `own` is the
    /// daemon's directory, or the tree on the second disk.
    pub(crate) fn words(self, tree: &Path, control: &Path, own: &Path) -> Result<Vec<String>> {
        let script = match self {
            Self::Random(programs) => return programs.words(tree),
            Self::Real(real) => return real.words(tree, control),
            Self::Unpack => return real::unpack(tree, control, 40),
            Self::TwoDisks => return Ok(on_two_disks(tree, own)),
            Self::OtherUser => return Ok(as_nobody(tree)),
            Self::Files => FILES,
            Self::Daemon => include_str!("work/daemon.pl"),
            Self::Checkpoint => include_str!("work/checkpoint.pl"),
            Self::Excepted => include_str!("work/excepted.pl"),
        };
        let places = [tree, control, own].map(|path| path.display().to_string());
        Ok(["perl", "-e", script].map(str::to_owned).into_iter().chain(places).collect())
    }

    /// Returns what wrote `path` of the tree and how to repeat it, where the row's name does
    /// not suffice.
    pub(crate) fn explain(self, path: &str) -> Option<String> {
        match self {
            Self::Random(programs) => Some(programs.explain(path)),
            _ => None,
        }
    }

    /// Whether the commit makes a sync(2), which would save what another run has to lose.
    pub(crate) fn commits_all_disks(self) -> bool {
        self == Self::OtherUser
    }

    /// Whether the file in the daemon's directory is durable in the middle of the run.
    pub(crate) fn is_durable_early(self) -> bool {
        matches!(self, Self::Checkpoint | Self::Excepted)
    }

    pub(crate) fn leaves_daemon(self) -> bool {
        self == Self::Daemon
    }
}

/// Returns the command line that writes in `tree` as the user nobody.
fn as_nobody(tree: &Path) -> Vec<String> {
    let nobody = NOBODY.to_string();
    let words = ["setpriv", "--reuid", &nobody, "perl", "-e", FILES].map(str::to_owned);
    words.into_iter().chain([tree.display().to_string()]).collect()
}

/// Returns the command line that writes in both trees at the same time.
fn on_two_disks(tree: &Path, second: &Path) -> Vec<String> {
    let script = r#"perl -e "$0" "$1" & perl -e "$0" "$2" && wait $!"#;
    let trees = [tree, second].map(|path| path.display().to_string());
    ["sh", "-c", script, FILES].map(str::to_owned).into_iter().chain(trees).collect()
}

/// Whether the file in the daemon's directory is complete.
pub(crate) fn is_durable(own: &Path) -> bool {
    fs::read_to_string(own.join("file")).is_ok_and(|text| text == DURABLE.repeat(LINES))
}
