//! What a run says to its caller, while it goes on and at its end.

use crate::accounts::Accounts;
use crate::protocol::{CommandEnd, CommitReport, Notice};
use crate::trouble::Trouble;
use std::path::PathBuf;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It did not start, or its end could not be found out.
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
    /// No commit was asked for.
    NotAsked,
    /// No call was held, so it is as safe as without a hold.
    NothingHeld,
    /// It may be lost.
    Interrupted {
        /// The marker that says so, if it is there.
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
    /// Why the run failed; `None` when it kept its promise.
    pub trouble: Option<Trouble>,
    /// File systems that were not durable yet when the user lost patience.
    pub unfinished: Vec<PathBuf>,
}

/// Receives notices and progress while a run goes on.
pub trait Observer {
    /// Something the user should know.
    fn notice(&mut self, notice: &Notice);
    /// The commit goes on: where it waits, and the host's dirty bytes. Called
    /// about four times a second.
    fn progress(&mut self, waiting: &[PathBuf], dirty: u64);
    /// The commit is over, well or not.
    fn progress_ends(&mut self);
}
