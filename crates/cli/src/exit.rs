//! Exit codes.
//!
//! `synconce run` exits with the command's own code, or dies by the signal that
//! ended it. The others follow `env(1)` and `timeout(1)`.

use std::process::ExitCode;
use synconce_hold::Trouble;
use synconce_sys::signals;

/// An exit code of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u8);

/// synconce itself failed; a failed commit included.
pub const FAILED: Code = Code(125);
/// The command was found but cannot be executed.
pub const CANNOT_EXECUTE: Code = Code(126);
/// The command was not found.
pub const NOT_FOUND: Code = Code(127);
/// `synconce status`: runs are in flight, none is interrupted.
pub const IN_FLIGHT: Code = Code(3);
/// `synconce status`: a run was interrupted.
pub const INTERRUPTED: Code = Code(4);

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}

/// The exit code of a run that ends with `trouble`.
pub fn of(trouble: &Trouble) -> Code {
    const ENOENT: i32 = 2;
    match trouble {
        Trouble::Exec { errno: ENOENT, .. } => NOT_FOUND,
        Trouble::Exec { .. } => CANNOT_EXECUTE,
        _ => FAILED,
    }
}

/// Ends by `signal`; an exit code where that does not kill.
pub fn by_signal(signal: i32) -> ExitCode {
    signals::die_by(signal);
    ExitCode::from(128_u8.wrapping_add(signal as u8))
}
