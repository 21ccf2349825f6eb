//! What a run reports to its caller, during the run and at its end.

use crate::report::accounts::Accounts;
use crate::report::balance::Balance;
use crate::report::protocol::{CommitReport, Ending, Notice};
use crate::report::run_error::RunError;
use std::path::PathBuf;

/// What became of the work of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
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
    /// Whether the command was started.
    pub began: bool,
    /// How the command ended.
    pub ending: Ending,
    /// Calls held and passed.
    pub accounts: Accounts,
    /// What the run saved and what it cost.
    pub balance: Balance,
    /// What became of the work.
    pub outcome: RunOutcome,
    /// How the commit went, when there was one.
    pub commit: Option<CommitReport>,
    /// Why the run failed; `None` if the run succeeded.
    pub error: Option<RunError>,
    /// File systems that were not durable yet when the user stopped waiting.
    pub unfinished: Vec<PathBuf>,
}

impl Finished {
    /// Returns the end of a run that did not begin.
    pub(crate) fn failed(error: RunError) -> Self {
        Self {
            began: false,
            ending: Ending::Unknown,
            accounts: Accounts::default(),
            balance: Balance::default(),
            outcome: RunOutcome::NotAsked,
            commit: None,
            error: Some(error),
            unfinished: Vec::new(),
        }
    }
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
