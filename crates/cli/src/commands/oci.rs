//! `synconce oci`, and the same program called as an OCI runtime.

use crate::arguments::Oci;
use crate::exit;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use synconce_oci::{explain, wrap};

/// `synconce-oci`, its names by runtime, and those of the runtimes themselves.
fn is_runtime(name: &str) -> bool {
    name.starts_with("synconce-oci") || matches!(name, "runc" | "crun" | "buildkit-runc")
}

/// Does a runtime's work, if that is the name that we were called by. First of
/// all: an engine waits for it at every start of a container.
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
                // A closed stream is the reader's choice.
                let _ = std::io::stdout().write_all(text.as_bytes());
                return ExitCode::SUCCESS;
            }
            Err(error) => error,
        },
        _ => wrap::wrap(name, arguments),
    };
    let _ = writeln!(std::io::stderr(), "synconce-oci: {error}");
    exit::FAILED.into()
}
