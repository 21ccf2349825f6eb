//! What a run reports to its caller, while it goes on and at its end.

use crate::accounts::Accounts;
use crate::protocol::{CommandEnd, CommitReport, Notice};
use crate::run_error::RunError;
use std::path::PathBuf;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// The command did not start, or its exit status is unknown.
    Unknown,
}

impl From<CommandEnd> for Ending {
    fn from(end: CommandEnd) -> Self {
        match end {
            CommandEnd::Exited(code) => Self::Exited(code),
            CommandEnd::Killed(signal) => Self::Killed(signal),
        }
    }
}

/// What became of the work of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable.
    Committed,
    /// No commit was requested.
    NotAsked,
    /// No call was held, so the work is as safe as without a hold.
    NothingHeld,
    /// The work may be lost.
    Interrupted {
        /// The marker of the interrupted run, if it exists.
        marker: Option<PathBuf>,
    },
}

/// A finished run.
#[derive(Debug)]
pub struct Finished {
    /// How the command ended.
    pub ending: Ending,
    /// Calls held and passed.
    pub accounts: Accounts,
    /// What became of the work.
    pub outcome: Outcome,
    /// How the commit went, when there was one.
    pub commit: Option<CommitReport>,
    /// Why the run failed; `None` if the run succeeded.
    pub error: Option<RunError>,
    /// File systems that were not durable yet when the user stopped waiting.
    pub unfinished: Vec<PathBuf>,
}

/// Receives the reports of a run in progress.
pub trait Observer {
    /// Called with a notice for the user.
    fn notice(&mut self, notice: &Notice);
    /// Called about four times a second during the commit, with the file systems that are not
    /// durable yet and the host's dirty bytes.
    fn progress(&mut self, waiting: &[PathBuf], dirty: u64);
    /// Called when the commit is over, whether or not it succeeded.
    fn progress_ends(&mut self);
}
