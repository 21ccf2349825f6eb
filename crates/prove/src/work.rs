//! What is run: perl where it can be, because every Debian has it and a preload reaches it.

mod random;

use crate::Result;
pub(crate) use random::{Kind, Perform, Programs, perform};
use std::fs;
use std::path::Path;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A package manager's habits in small.
    Files,
    /// Leaves a daemon behind, which syncs once the run is over.
    Daemon,
    /// Random programs, hundreds at a time.
    Random(Programs),
}

/// What the daemon writes.
pub(crate) const DURABLE: &str = "durable\n";
const LINES: usize = 900;

impl Work {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Files => "files".to_owned(),
            Self::Daemon => "daemon".to_owned(),
            Self::Random(programs) => programs.name(),
        }
    }

    /// How many takes show all of it.
    pub(crate) fn parts(self) -> usize {
        match self {
            Self::Files | Self::Daemon => 1,
            Self::Random(programs) => programs.batches(),
        }
    }

    /// The part for the take with this number.
    pub(crate) fn part(self, round: usize) -> Self {
        match self {
            Self::Files | Self::Daemon => self,
            Self::Random(programs) => {
                let batch = round % programs.batches().max(1);
                Self::Random(Programs { batch, ..programs })
            }
        }
    }

    /// What is there before.
    pub(crate) fn prepare(self, tree: &Path) -> Result<()> {
        if let Self::Random(programs) = self {
            return programs.prepare(tree);
        }
        for i in 0..20 {
            fs::write(tree.join(format!("old{i}")), format!("old {i}\n").repeat(300))?;
            fs::write(tree.join(format!("gone{i}")), format!("gone {i}\n"))?;
        }
        Ok(())
    }

    /// The command; `control` is not on the disk under test, `own` is the daemon's.
    pub(crate) fn words(self, tree: &Path, control: &Path, own: &Path) -> Result<Vec<String>> {
        let script = match self {
            Self::Random(programs) => return programs.words(tree),
            Self::Files => include_str!("work/files.pl"),
            Self::Daemon => include_str!("work/daemon.pl"),
        };
        let places = [tree, control, own].map(|path| path.display().to_string());
        Ok(["perl", "-e", script].map(str::to_owned).into_iter().chain(places).collect())
    }

    /// What wrote `path` of the tree, and how to do it again, where that is more than the row's name.
    pub(crate) fn explain(self, path: &str) -> Option<String> {
        match self {
            Self::Files | Self::Daemon => None,
            Self::Random(programs) => Some(programs.explain(path)),
        }
    }

    pub(crate) fn leaves_daemon(self) -> bool {
        self == Self::Daemon
    }
}

/// Whether the daemon's file is there, whole.
pub(crate) fn is_durable(own: &Path) -> bool {
    fs::read_to_string(own.join("file")).is_ok_and(|text| text == DURABLE.repeat(LINES))
}
