//! A run: mark, launch, supervise, release, commit, clear.
//!
//! [`run`] makes a run; [`commit()`] and [`run_real`] ask a run in flight for something. A run
//! forks once. The *frontend* stays in the caller's process, and mirrors the command's stops
//! and its exit status. The *supervisor* is the command's parent: it answers the command's
//! calls, commits, and stays for survivors.
//! With [`RunOptions::record`] nothing is held, and each call is timed ([`Recording`]).
//! `lifecycle` alone owns the order of the steps.
#![forbid(unsafe_code)]

mod call;
mod commit;
mod frontend;
mod launching;
mod lifecycle;
mod options;
mod process;
mod report;
mod request;
mod supervisor;
mod watch;

pub use call::rules::{RuleError, RuleKind, RuleReason};
pub use frontend::{execute_unheld, run};
pub use options::RunOptions;
pub use process::privileges::{Gain, gains};
pub use process::process_tree::{Process, descendants};
pub use process::remains::processes_of;
pub use report::accounts::{Accounts, PassReason, Tally};
pub use report::balance::Balance;
pub use report::counts::RunCounts;
pub use report::finished::{Finished, Observer, RunOutcome};
pub use report::protocol::{
    CommitReport, Committed, CommittedEverything, Ending, Notice, OwnFilter,
};
pub use report::run_error::{FailedAct, NoRules, RAISE_OPEN_FILES, RunError};
pub use request::held::{is_held, is_in_step, is_uncommitted, refuse_deadly_filter};
pub use request::real::{RealError, make_syncs_real, refuse_if_sealed, run_real};
pub use request::runfile::{Live, Phase, failed_commit, forget_failed_commit, live};
pub use request::{RequestError, commit, in_flight};
pub use watch::recording::Recording;
