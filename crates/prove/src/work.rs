//! What is run: perl, because every Debian has it and a preload reaches it.

use crate::Result;
use std::fs;
use std::path::Path;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A package manager's habits in small.
    Files,
    /// Leaves a daemon behind, which syncs once the run is over.
    Daemon,
}

/// What the daemon writes.
pub(crate) const DURABLE: &str = "durable\n";
const LINES: usize = 900;

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Daemon => "daemon",
        }
    }

    /// What is there before.
    pub(crate) fn prepare(self, tree: &Path) -> Result<()> {
        for i in 0..20 {
            fs::write(tree.join(format!("old{i}")), format!("old {i}\n").repeat(300))?;
            fs::write(tree.join(format!("gone{i}")), format!("gone {i}\n"))?;
        }
        Ok(())
    }

    /// The command; `control` is not on the disk under test, `own` is the daemon's.
    pub(crate) fn words(self, tree: &Path, control: &Path, own: &Path) -> Vec<String> {
        let script = match self {
            Self::Files => include_str!("work/files.pl"),
            Self::Daemon => include_str!("work/daemon.pl"),
        };
        let places = [tree, control, own].map(|path| path.display().to_string());
        ["perl", "-e", script].map(str::to_owned).into_iter().chain(places).collect()
    }

    pub(crate) fn leaves_daemon(self) -> bool {
        self == Self::Daemon
    }
}

/// Whether the daemon's file is there, whole.
pub(crate) fn is_durable(own: &Path) -> bool {
    fs::read_to_string(own.join("file")).is_ok_and(|text| text == DURABLE.repeat(LINES))
}
