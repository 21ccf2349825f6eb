//! What a run is asked to do.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What becomes of `io_uring_setup(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// `ENOSYS`, so that programs fall back to calls that can be held.
    #[default]
    Refuse,
    /// Let through; its syncs are not held.
    Pass,
}

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Answer by the filter alone.
    pub sealed: bool,
    /// Commit at the end, and keep a marker until then.
    pub commit: bool,
    /// Hold calls on the file systems of these paths alone, and commit those; when empty, on
    /// all.
    pub commit_only: Vec<PathBuf>,
    /// Commit every mounted file system, whether or not a call on it was held.
    pub commit_all: bool,
    /// How long a device may stand still during the commit before it is given up.
    pub patience: Duration,
    /// The root that the work is for: the marker is kept there too.
    pub root: Option<PathBuf>,
    /// What becomes of io_uring.
    pub io_uring: IoUring,
    /// Account by program, too.
    pub by_program: bool,
}

impl Options {
    /// Whether all that is mounted is committed: a sealed filter does not know what was held.
    pub(crate) fn commits_all(&self) -> bool {
        self.commit_all || self.sealed
    }
}
