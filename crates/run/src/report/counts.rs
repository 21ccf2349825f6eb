//! Counts of this user's runs and of their commits since the boot, in memory (`/run/synconce/counts`).

use std::path::{Path, PathBuf};
use synconce_durable::{count, standard_paths};

const RUNS: &str = "runs";
const DURABLE: &str = "commits.durable";
const FAILED: &str = "commits.failed";

/// Counts a run whose command has ended, and its commit, if it made one: whether that was durable. A count
/// that cannot be written is missing, and nothing else.
pub(crate) fn note(commit: Option<bool>) {
    let Some(directory) = directory().filter(|it| count::make_directory(it).is_ok()) else {
        return;
    };
    let result = commit.map(|is_durable| if is_durable { DURABLE } else { FAILED });
    for name in [Some(RUNS), result].into_iter().flatten() {
        let _ = count::add_one(&directory.join(name));
    }
}

/// Counts since the boot. Each ends at [`count::MOST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Runs whose command has ended.
    pub runs: u64,
    /// Commits of these runs after which all of their work was durable.
    pub durable_commits: u64,
    /// Commits of these runs that failed.
    pub failed_commits: u64,
}

impl RunCounts {
    /// Reads the counts of this user.
    pub fn read() -> Self {
        let count = |directory: &Path, name| count::read(&directory.join(name));
        directory().map_or_else(Self::default, |it| Self {
            runs: count(&it, RUNS),
            durable_commits: count(&it, DURABLE),
            failed_commits: count(&it, FAILED),
        })
    }
}

fn directory() -> Option<PathBuf> {
    standard_paths::runtime().map(|directory| directory.join("counts"))
}
