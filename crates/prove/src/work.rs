//! What is run: perl where it can be, because every Debian has it and a preload reaches it.

mod random;
mod real;

use crate::Result;
pub(crate) use random::{Kind, Perform, Programs, perform};
pub(crate) use real::{Real, is_installed};
use std::fs;
use std::path::Path;
use std::time::Duration;
use synconce_testkit::patiently;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A package manager's habits in small.
    Files,
    /// Leaves a daemon behind, which syncs once the run is over.
    Daemon,
    /// Random programs, hundreds at a time.
    Random(Programs),
    /// What people run.
    Real(Real),
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
            Self::Real(real) => real.name().to_owned(),
        }
    }

    /// Why it cannot be run here.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Files | Self::Daemon | Self::Random(_) => None,
            Self::Real(real) => real.missing(),
        }
    }

    /// Bytes that the disk has to have.
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::Files | Self::Daemon | Self::Random(_) => 384 << 20,
            Self::Real(real) => real.size(),
        }
    }

    /// Far more than it takes.
    pub(crate) fn limit(self) -> Duration {
        patiently(match self {
            Self::Files | Self::Daemon | Self::Random(_) => Duration::from_secs(120),
            Self::Real(_) => Duration::from_secs(1200),
        })
    }

    /// Whether its recording fills so much of the memory that there is room for one at a time.
    pub(crate) fn is_big(self) -> bool {
        matches!(self, Self::Real(_))
    }

    /// In how many takes it is recorded, at least, and all of it is run.
    pub(crate) fn takes(self) -> usize {
        /// One in each company.
        const TAKES: usize = 4;
        match self {
            Self::Files | Self::Daemon => TAKES,
            Self::Random(programs) => TAKES.max(programs.batches()),
            Self::Real(_) => 2,
        }
    }

    /// The part for the take with this number.
    pub(crate) fn part(self, round: usize) -> Self {
        match self {
            Self::Files | Self::Daemon | Self::Real(_) => self,
            Self::Random(programs) => {
                let batch = round % programs.batches().max(1);
                Self::Random(Programs { batch, ..programs })
            }
        }
    }

    /// What is there before.
    pub(crate) fn prepare(self, tree: &Path) -> Result<()> {
        match self {
            Self::Random(programs) => return programs.prepare(tree),
            Self::Real(real) => return real.prepare(tree),
            Self::Files | Self::Daemon => {}
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
            Self::Real(real) => return real.words(tree, control),
            Self::Files => include_str!("work/files.pl"),
            Self::Daemon => include_str!("work/daemon.pl"),
        };
        let places = [tree, control, own].map(|path| path.display().to_string());
        Ok(["perl", "-e", script].map(str::to_owned).into_iter().chain(places).collect())
    }

    /// What wrote `path` of the tree, and how to do it again, where that is more than the row's name.
    pub(crate) fn explain(self, path: &str) -> Option<String> {
        match self {
            Self::Files | Self::Daemon | Self::Real(_) => None,
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
