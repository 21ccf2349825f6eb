//! The options of a run.

use crate::report::run_error::NoRules;
use crate::request::held::is_in_step;
use crate::watch::recording::Recording;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The options of a run. A run with the default options commits nothing.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
    /// The options of the run as a user typed them, which `synconce status` repeats.
    pub typed: Option<Vec<String>>,
    /// The command's `argv[0]`; by default the first word of `command`.
    pub argv0: Option<OsString>,
    /// The command's environment, without the variable that names the run; by default the
    /// environment of this process.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// Answer held calls by the filter alone, without a supervisor.
    pub sealed: bool,
    /// Commit at the end, and keep a marker until then.
    pub commit: bool,
    /// Hold calls only on the file systems of these paths, and commit these file systems. If empty,
    /// hold calls on all file systems.
    pub commit_only: Vec<PathBuf>,
    /// Hold only the syncs of files at or below these paths, which may have wildcards. If empty,
    /// hold the syncs of all files.
    pub only: Vec<PathBuf>,
    /// Do not hold the syncs of files at or below these paths. Takes precedence over `only`.
    pub except: Vec<PathBuf>,
    /// Commit every mounted file system, whether or not a call on it was held.
    pub commit_all: bool,
    /// The interval of checkpoints.
    pub commit_every: Option<Duration>,
    /// How long a device may transfer no data before the commit gives up the device.
    pub patience: Duration,
    /// The root directory that the command works on. A second marker is kept there.
    pub root: Option<PathBuf>,
    /// Allow io_uring_setup(2), although the syncs of an io_uring are not held. Otherwise the call
    /// fails with `ENOSYS`, so that programs fall back to calls that can be held.
    pub io_uring_pass: bool,
    /// If the marker cannot be made durable, let the command run with real syncs. Otherwise the
    /// command is terminated.
    pub or_real: bool,
    /// Count calls by program as well.
    pub by_program: bool,
    /// Hold nothing: let the kernel do each call, and record here how long the call took.
    pub record: Option<Arc<Recording>>,
    /// With `record`: also time the syncs of build steps whose runtime is synconce-oci. These steps
    /// are not held.
    pub watch_steps: bool,
}

impl RunOptions {
    /// Whether every file system in the scope is committed, with or without a held call: a sealed
    /// filter does not record held calls.
    pub(crate) fn commits_all(&self) -> bool {
        self.commit_all || self.sealed
    }

    /// Whether `only` or `except` chooses files.
    pub(crate) fn has_rules(&self) -> bool {
        !(self.only.is_empty() && self.except.is_empty())
    }

    /// Returns why the run cannot follow `only` and `except`, or `None` if nothing prevents that or
    /// both are empty. `is_inner` says whether this run is inside another hold.
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
