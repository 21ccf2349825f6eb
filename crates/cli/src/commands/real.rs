//! `synconce real`

use crate::arguments::in_run::Real;
use crate::commands::run::end_as;
use crate::exit;
use crate::text::say;
use std::process::ExitCode;
use synconce_run::RealError;
use synconce_sys::reason;

/// Runs the command with real syncs and ends as the command did.
pub fn real(arguments: &Real) -> ExitCode {
    let error = match synconce_run::run_real(&arguments.command) {
        Ok(ending) => return end_as(ending),
        Err(error) => error,
    };
    if let RealError::Exec(error) = &error {
        let command = arguments.command[0].to_string_lossy();
        say(&format!("cannot execute {command}: {}", reason(error)));
        return exit::not_executed(error.raw_os_error().unwrap_or(0)).into();
    }
    say(&error.to_string());
    if matches!(error, RealError::Sealed) {
        say("hint: start the run without --sealed, or use `synconce commit` after the command");
    }
    exit::FAILED.into()
}
