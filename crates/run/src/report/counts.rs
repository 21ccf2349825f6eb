//! Counts of this user's runs and of their commits since the boot, in memory
//! (`/run/synconce/counts`).

use std::path::Path;
use synconce_durable::{count, standard_paths};

const COUNTS: &str = "counts";
const RUNS: &str = "runs";
const DURABLE: &str = "commits.durable";
const FAILED: &str = "commits.failed";

/// Counts in `runtime`, the directory of run files, a run whose command has ended, and its commit,
/// if it made one: whether that was durable. A count that cannot be written is missing, and nothing
/// else. Counts nothing if the program was removed meanwhile.
pub(crate) fn note(runtime: &Path, commit: Option<bool>) {
    let directory = runtime.join(COUNTS);
    if standard_paths::is_program_gone() || count::make_directory(&directory).is_err() {
        return;
    }
    let result = commit.map(|is_durable| if is_durable { DURABLE } else { FAILED });
    for name in [Some(RUNS), result].into_iter().flatten() {
        let _ = count::add_one(&directory.join(name));
    }
}

/// Counts since the boot. Each ends at [`count::MOST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Runs with a commit whose command has ended, but for those whose `/run` is on a disk.
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
        let directory = standard_paths::runtime().map(|runtime| runtime.join(COUNTS));
        directory.map_or_else(Self::default, |it| Self {
            runs: count(&it, RUNS),
            durable_commits: count(&it, DURABLE),
            failed_commits: count(&it, FAILED),
        })
    }
}
