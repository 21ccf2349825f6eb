//! The options of a run.

use crate::report::run_error::NoRules;
use crate::request::held::is_in_step;
use crate::watch::recording::Recording;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The options of a run. By default it commits nothing.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
    /// The options of the run as a user typed them, which `synconce status` repeats.
    pub typed: Option<Vec<String>>,
    /// The command's `argv[0]`. By default it is the first word of `command`.
    pub argv0: Option<OsString>,
    /// The command's environment, without the variable that names the run. By default it is the
    /// environment of this process.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// Answer by the filter alone.
    pub sealed: bool,
    /// Commit at the end, and keep a marker until then.
    pub commit: bool,
    /// Hold calls only on the file systems of these paths, and commit those. If empty, hold
    /// calls on all file systems.
    pub commit_only: Vec<PathBuf>,
    /// Hold only the syncs of files at or below these paths, which may have wildcards. If empty,
    /// hold the syncs of all files.
    pub only: Vec<PathBuf>,
    /// Leave the syncs of files at or below these paths to the kernel. Wins over `only`.
    pub except: Vec<PathBuf>,
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
    /// If the marker cannot be made durable, let the command run with real syncs. Otherwise the
    /// command is terminated.
    pub or_real: bool,
    /// Count calls by program as well.
    pub by_program: bool,
    /// Hold nothing: do each call, and write here how long it took.
    pub record: Option<Arc<Recording>>,
    /// With `record`: time the syncs of the steps of image builds, too, whose runtime is synconce-oci.
    /// These steps are not held.
    pub watch_steps: bool,
}

impl RunOptions {
    /// Whether everything that is mounted is committed: a sealed filter does not record what
    /// was held.
    pub(crate) fn commits_all(&self) -> bool {
        self.commit_all || self.sealed
    }

    /// Whether files are chosen by `only` or `except`.
    pub(crate) fn has_rules(&self) -> bool {
        !(self.only.is_empty() && self.except.is_empty())
    }

    /// Returns why the run cannot follow `only` and `except`, if it has any. `is_inner` says
    /// whether another hold is around this one.
    pub(crate) fn without_rules(&self, is_inner: bool) -> Option<NoRules> {
        if !self.has_rules() || !(is_inner || self.sealed) {
            return None;
        }
        Some(if !is_inner {
            NoRules::Sealed
        } else if is_in_step() {
            NoRules::BuildStep
        } else {
            NoRules::Inside
        })
    }
}
