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
    /// The files of a package manager on two disks at once.
    TwoDisks,
    /// tar unpacks files, and syncs none.
    Unpack,
    /// Random programs, hundreds at a time.
    Random(Programs),
    /// What people run.
    Real(Real),
}

const FILES: &str = include_str!("work/files.pl");
/// What the daemon writes.
pub(crate) const DURABLE: &str = "durable\n";
const LINES: usize = 900;

impl Work {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Files => "files".to_owned(),
            Self::Daemon => "daemon".to_owned(),
            Self::TwoDisks => "files on two disks".to_owned(),
            Self::Unpack => "tar x, 600 files".to_owned(),
            Self::Random(programs) => programs.name(),
            Self::Real(real) => real.name().to_owned(),
        }
    }

    /// Why it cannot be run here.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Real(real) => real.missing(),
            _ => None,
        }
    }

    /// Bytes that the disk has to have.
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::Real(real) => real.size(),
            _ => 384 << 20,
        }
    }

    /// Far more than it takes.
    pub(crate) fn limit(self) -> Duration {
        patiently(match self {
            Self::Real(_) => Duration::from_secs(1200),
            _ => Duration::from_secs(120),
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
            Self::Random(programs) => TAKES.max(programs.batches()),
            Self::Real(_) => 2,
            _ => TAKES,
        }
    }

    /// The part for the take with this number.
    pub(crate) fn part(self, round: usize) -> Self {
        match self {
            Self::Random(programs) => {
                let batch = round % programs.batches().max(1);
                Self::Random(Programs { batch, ..programs })
            }
            _ => self,
        }
    }

    /// What is there before.
    pub(crate) fn prepare(self, tree: &Path) -> Result<()> {
        match self {
            Self::Random(programs) => return programs.prepare(tree),
            Self::Real(real) => return real.prepare(tree),
            Self::Unpack => return Ok(()),
            Self::Files | Self::Daemon | Self::TwoDisks => {}
        }
        for i in 0..20 {
            fs::write(tree.join(format!("old{i}")), format!("old {i}\n").repeat(300))?;
            fs::write(tree.join(format!("gone{i}")), format!("gone {i}\n"))?;
        }
        Ok(())
    }

    /// Whether it makes any call that is held.
    pub(crate) fn asks_for_syncs(self) -> bool {
        !matches!(self, Self::Unpack | Self::Real(Real::Untar))
    }

    /// The command; `control` is not on the disk under test, `own` is the daemon's, or the tree on
    /// the second disk.
    pub(crate) fn words(self, tree: &Path, control: &Path, own: &Path) -> Result<Vec<String>> {
        let script = match self {
            Self::Random(programs) => return programs.words(tree),
            Self::Real(real) => return real.words(tree, control),
            Self::Unpack => return real::unpack(tree, control, 40),
            Self::TwoDisks => return Ok(on_two_disks(tree, own)),
            Self::Files => FILES,
            Self::Daemon => include_str!("work/daemon.pl"),
        };
        let places = [tree, control, own].map(|path| path.display().to_string());
        Ok(["perl", "-e", script].map(str::to_owned).into_iter().chain(places).collect())
    }

    /// What wrote `path` of the tree, and how to do it again, where that is more than the row's name.
    pub(crate) fn explain(self, path: &str) -> Option<String> {
        match self {
            Self::Random(programs) => Some(programs.explain(path)),
            _ => None,
        }
    }

    pub(crate) fn leaves_daemon(self) -> bool {
        self == Self::Daemon
    }
}

/// The command that writes in both trees at once.
fn on_two_disks(tree: &Path, second: &Path) -> Vec<String> {
    let script = r#"perl -e "$0" "$1" & perl -e "$0" "$2" && wait $!"#;
    let trees = [tree, second].map(|path| path.display().to_string());
    ["sh", "-c", script, FILES].map(str::to_owned).into_iter().chain(trees).collect()
}

/// Whether the daemon's file is there, whole.
pub(crate) fn is_durable(own: &Path) -> bool {
    fs::read_to_string(own.join("file")).is_ok_and(|text| text == DURABLE.repeat(LINES))
}
