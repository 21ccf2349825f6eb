//! `synconce real`

use crate::arguments::in_run::Real;
use crate::commands::error::CommandError;
use crate::commands::run::end_as;
use crate::exit;
use crate::text::say;
use std::process::ExitCode;
use synconce_durable::text::shown;
use synconce_run::RealError;
use synconce_sys::reason;

/// Runs the command with real syncs and ends as the command did.
///
/// # Errors
/// The run does not make the syncs real.
pub fn real(arguments: &Real) -> Result<ExitCode, CommandError> {
    match synconce_run::run_real(&arguments.command) {
        Ok(ending) => Ok(end_as(ending)),
        Err(RealError::Exec(error)) => {
            let command = arguments.command[0].to_string_lossy();
            say(&format!("cannot execute {}: {}", shown(&command), reason(&error)));
            Ok(exit::not_executed(error.raw_os_error().unwrap_or(0)).into())
        }
        Err(error) => {
            let hint = "start the run without --sealed, or use `synconce commit` after the command";
            Err(sealed(&error, hint))
        }
    }
}

/// Returns why syncs stay held; in a sealed run with `hint`.
pub(super) fn sealed(error: &RealError, hint: &str) -> CommandError {
    let hint = matches!(error, RealError::Sealed).then(|| hint.to_owned());
    CommandError::from(error.to_string()).with_remedy(hint)
}
