//! A run: mark, launch, supervise, release, commit, clear.
//!
//! [`run`] is the only entrance. It forks once: the *face* stays where the user
//! started it and mirrors the command's stops and end; the *supervisor* is the
//! command's parent, answers its calls, commits, and stays for survivors.
//! `lifecycle` alone owns the order of the steps.
#![forbid(unsafe_code)]

mod accounts;
mod active;
mod answers;
mod caller;
mod claims;
mod face;
mod families;
mod finished;
mod held;
mod job;
mod judge;
mod launching;
mod lifecycle;
mod mapping;
mod options;
mod orphaned;
mod paths;
mod presence;
mod protocol;
mod remains;
mod rewrite;
mod rights;
mod runfile;
mod serve;
mod state;
mod supervisor;
mod targets;
mod trouble;
mod workers;

pub use accounts::{Accounts, Tally};
pub use face::{is_held, run};
pub use families::{Process, descendants};
pub use finished::{Ending, Finished, Observer, Outcome};
pub use held::{RUN_VARIABLE, outer};
pub use options::{IoUring, Options};
pub use protocol::{CommitReport, Committed, CommittedEverything, Notice};
pub use remains::processes_of;
pub use rights::Gain;
pub use runfile::{Live, Phase, failed_commit, forget_failed_commit, live};
pub use trouble::{Act, Trouble};
