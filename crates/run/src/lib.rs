//! A run: mark, launch, supervise, release, commit, clear.
//!
//! [`run`] makes a run; [`commit`] and [`run_real`] ask a run in flight for something. A run
//! forks once. The *frontend* stays in the caller's process, and mirrors the command's stops
//! and its exit status. The *supervisor* is the command's parent: it answers the command's
//! calls, commits, and stays for survivors.
//! With [`RunOptions::record`] nothing is held, and each call is timed ([`Recording`]).
//! `lifecycle` alone owns the order of the steps.
#![forbid(unsafe_code)]

mod accounts;
mod active;
mod balance;
mod caller;
mod checkpoints;
mod counts;
mod directory;
mod fd_info;
mod finished;
mod frontend;
mod held;
mod job;
mod launching;
mod lifecycle;
mod lookups;
mod mapping;
mod options;
mod paths;
mod policy;
mod presence;
mod privileges;
mod process_tree;
mod protocol;
mod real;
mod remains;
mod request;
mod responder;
mod rewrite;
mod rules;
mod run_error;
mod runfile;
mod serve;
mod state;
mod supervisor;
mod supervisor_death;
mod tracee_locks;
mod watch;
mod workers;

pub use accounts::{Accounts, PassReason, Tally};
pub use balance::Balance;
pub use counts::RunCounts;
pub use finished::{Finished, Observer, RunOutcome};
pub use frontend::{execute_unheld, run};
pub use held::{is_held, is_in_step};
pub use options::RunOptions;
pub use privileges::{Gain, gains};
pub use process_tree::{Process, descendants};
pub use protocol::{CommitReport, Committed, CommittedEverything, Ending, Notice, OwnFilter};
pub use remains::processes_of;
pub use request::real::{RealError, make_syncs_real, refuse_if_sealed, run_real};
pub use request::{RequestError, commit, in_flight};
pub use rules::{RuleError, RuleKind, RuleReason};
pub use run_error::{FailedAct, NoRules, RunError};
pub use runfile::{Live, Phase, failed_commit, forget_failed_commit, live};
pub use watch::line::Recording;
