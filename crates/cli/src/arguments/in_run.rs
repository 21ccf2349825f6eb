//! What is said to a run in flight.

use super::Json;
use crate::completion::values;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use std::ffi::OsString;

#[derive(Debug, Args)]
pub struct Commit {
    /// Where the result for each file system is printed as JSON.
    #[command(flatten)]
    pub json: Json,
    /// The run, as `synconce status` names it; the beginning of the ID is enough
    #[arg(value_name = "ID", add = ArgValueCompleter::new(values::runs_in_flight))]
    pub id: Option<String>,
}

#[derive(Debug, Args)]
pub struct Real {
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
