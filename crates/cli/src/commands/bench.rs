//! `synconce bench`

use crate::arguments::Bench;
use crate::exit;
use std::process::ExitCode;

/// Measures.
pub fn bench(_arguments: Bench) -> ExitCode {
    exit::FAILED.into()
}
