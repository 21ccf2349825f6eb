//! `synconce oci`, and synconce called by the name of an OCI runtime.

use crate::arguments::Oci;
use crate::commands::output::print;
use crate::exit;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use synconce_oci::wrap::wrap;
use synconce_oci::{RuntimeEnd, explain, is_runtime};

/// Acts as an OCI runtime if the program was called by the name of one. Called before anything
/// else, because an engine waits for the runtime at every start of a container.
pub fn called_as_runtime() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    let base = Path::new(&name).file_name()?.to_str()?;
    is_runtime(base).then(|| stand_in(&name, &arguments.collect::<Vec<_>>()))
}

/// Runs the command.
pub fn oci(arguments: Oci) -> ExitCode {
    stand_in(OsStr::new("synconce-oci"), &arguments.arguments)
}

fn stand_in(name: &OsStr, arguments: &[OsString]) -> ExitCode {
    let error = match arguments.split_first() {
        Some((first, rest)) if first == "--explain" => match explain::explain(name, rest) {
            Ok(text) => {
                return match print(text) {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(unwritten) => unwritten.end(),
                };
            }
            Err(error) => error,
        },
        _ => match wrap(name, arguments) {
            RuntimeEnd::Failed(error) => error,
            RuntimeEnd::Exited(code) => return ExitCode::from(code),
            RuntimeEnd::Killed(signal) => return exit::by_signal(signal),
        },
    };
    let _ = writeln!(std::io::stderr(), "synconce-oci: {error}");
    exit::FAILED.into()
}
