//! The options of a run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The options of a run. By default it commits nothing.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Answer by the filter alone.
    pub sealed: bool,
    /// Commit at the end, and keep a marker until then.
    pub commit: bool,
    /// Hold calls only on the file systems of these paths, and commit those. If empty, hold
    /// calls on all file systems.
    pub commit_only: Vec<PathBuf>,
    /// Commit every mounted file system, whether or not a call on it was held.
    pub commit_all: bool,
    /// The interval of checkpoints.
    pub commit_every: Option<Duration>,
    /// How long a device may complete no request during the commit before it is given up.
    pub patience: Duration,
    /// The root that the work is for: a second marker is kept there.
    pub root: Option<PathBuf>,
    /// Let `io_uring_setup(2)` through, whose syncs are not held. Otherwise it is answered with
    /// `ENOSYS`, so that programs fall back to calls that can be held.
    pub io_uring_pass: bool,
    /// Count calls by program as well.
    pub by_program: bool,
}

impl Options {
    /// Whether everything that is mounted is committed: a sealed filter does not record what
    /// was held.
    pub(crate) fn commits_all(&self) -> bool {
        self.commit_all || self.sealed
    }
}
