//! What a run reports to its frontend, to its caller and to `synconce status`.

pub(crate) mod accounts;
pub(crate) mod balance;
pub(crate) mod counts;
pub(crate) mod finished;
pub(crate) mod protocol;
pub(crate) mod run_error;
