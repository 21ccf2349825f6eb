//! Exit codes.
//!
//! `synconce run` exits with the command's exit code, or dies by the signal that ended the
//! command. The other codes follow `env(1)` and `timeout(1)`.

use rustix::io::Errno;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use synconce_run::RunError;
use synconce_sys::{process, signals};

/// An exit code of synconce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u8);

/// synconce itself failed, for example in the commit.
pub const FAILED: Code = Code(process::FAILED as u8);
/// The time of a command was over.
pub(crate) const TIME_IS_OVER: Code = Code(124);
/// The command was found but cannot be executed.
pub(crate) const CANNOT_EXECUTE: Code = Code(126);
/// The command was not found.
pub(crate) const NOT_FOUND: Code = Code(127);
/// `synconce setup --check`: the set-up would change a file, or is not in use.
pub(crate) const NOT_SET_UP: Code = Code(1);
/// `synconce doctor --fail-on`: a finding costs that much.
pub(crate) const COSTLY: Code = Code(1);
/// `synconce status`: runs are in flight, none is interrupted.
pub(crate) const IN_FLIGHT: Code = Code(3);
/// `synconce status`: a run was interrupted.
pub(crate) const INTERRUPTED: Code = Code(4);

/// By the name `eatmydata`, with the exit code of the script of that name: the command is not in
/// PATH.
pub(crate) const NOT_FOUND_BY_EATMYDATA: Code = Code(1);
/// By the name `eatmydata`, with the exit code of the script of that name: no command was given.
pub(crate) const WRONG_FOR_EATMYDATA: Code = Code(2);

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}

/// Returns the exit code of a run that ends with `error`.
pub(crate) fn of_run(error: &RunError) -> Code {
    match error {
        RunError::Exec { errno, .. } => not_executed(*errno),
        _ => FAILED,
    }
}

/// Returns the exit code for a command whose execve(2) failed with `errno`.
pub(crate) fn not_executed(errno: i32) -> Code {
    if errno == Errno::NOENT.raw_os_error() { NOT_FOUND } else { CANNOT_EXECUTE }
}

/// Ends as a command has ended: returns its exit code, or dies by its signal.
pub(crate) fn of_command(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(code as u8),
        (None, Some(signal)) => by_signal(signal),
        (None, None) => FAILED.into(),
    }
}

/// Ends the process by `signal`; returns an exit code if the signal does not kill.
pub(crate) fn by_signal(signal: i32) -> ExitCode {
    signals::die_by(signal);
    ExitCode::from(128_u8.wrapping_add(signal as u8))
}
