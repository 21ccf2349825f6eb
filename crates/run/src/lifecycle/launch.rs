//! Launches the command under its filter.

use crate::commit::active::Active;
use crate::launching;
use crate::options::RunOptions;
use crate::process::privileges;
use crate::report::protocol::{Message, send};
use crate::report::run_error::{NoRules, RunError};
use crate::request::presence::Presence;
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use synconce_filter::{HeldAnswer, Program, Spec, native_abis, program};
use synconce_sys::handover::Takeover;
use synconce_sys::launch::{Filter, LaunchError, Launched, launch};
use synconce_sys::seccomp::{Instruction, Listen};
use synconce_sys::signals::SignalSet;

/// Launches the command. In a sealed run the filter leads to `presence`.
pub(crate) fn launch_held(
    options: &RunOptions,
    active: &mut Active,
    mask: SignalSet,
    takeover: &Takeover,
    frontend: &OwnedFd,
    presence: Option<&Presence>,
) -> Result<Launched, RunError> {
    let bad = |error: std::io::Error| RunError::set_up("cannot use the command", &error);
    let id = options.record.is_none().then(|| active.markers.run_id());
    let command = launching::command(options, id).map_err(bad)?;
    // No supervisor sees the first call of a sealed run, so its marker is durable before the
    // launch.
    let launch_sealed = |active: &mut Active| {
        active.seal(options)?;
        active.markers.engage().map_err(RunError::before_any_hold)?;
        // Sent before a call can be held: if the supervisor is killed, only the frontend can
        // report the marker.
        let path = active.markers.path().map(Into::into);
        let _ = send(frontend, &Message::Marked { path });
        // Without a socket, an inner run searches /proc for the supervisor.
        let spec = Spec {
            identity: presence.map(Presence::identity),
            ..spec(options, HeldAnswer::Sealed)
        };
        let program = instructions(&program(&spec, native_abis()));
        let filter = Filter { listen: Listen::No, program: &program };
        let launched = launch(&command, filter, mask, takeover);
        launched.map_err(|error| launch_error(error, options))
    };
    if options.sealed {
        return launch_sealed(active);
    }
    let supervised = instructions(&program(&spec(options, HeldAnswer::Supervised), native_abis()));
    let listen = if options.record.is_some() { Listen::UntilAnswered } else { Listen::Yes };
    let filter = Filter { listen, program: &supervised };
    match launch(&command, filter, mask, takeover) {
        // EBUSY: a listener of another program is installed already (seccomp(2)).
        Err(LaunchError::Filter(error)) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
            if options.record.is_some() {
                return Err(RunError::ForeignListener);
            }
            if options.has_rules() {
                return Err(RunError::Rules(NoRules::ForeignListener));
            }
            launch_sealed(active)
        }
        Err(error) => Err(launch_error(error, options)),
        Ok(launched) => Ok(launched),
    }
}

/// Returns the path of the command itself, if its execution would gain privileges. Root has
/// them already.
pub(super) fn would_gain_privileges(command: &CStr) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(command.to_bytes()));
    (!rustix::process::geteuid().is_root() && privileges::gains(path)).then(|| path.to_owned())
}

fn launch_error(error: LaunchError, options: &RunOptions) -> RunError {
    match error {
        LaunchError::Clone(error) => RunError::set_up("cannot make a process", &error),
        LaunchError::Filter(error) => RunError::Filter(error.raw_os_error().unwrap_or(0)),
        LaunchError::Handover(error) => {
            RunError::set_up("cannot pass the listener to the frontend", &error)
        }
        LaunchError::Exec(error) => RunError::Exec {
            command: options.command[0].to_string_lossy().into_owned(),
            errno: error.raw_os_error().unwrap_or(0),
        },
    }
}

fn spec(options: &RunOptions, answer: HeldAnswer) -> Spec {
    // Under a supervisor the filter stops io_uring_setup(2) even with `--io-uring=pass`, so
    // that the supervisor counts it.
    let io_uring_pass = options.io_uring_pass && answer == HeldAnswer::Sealed;
    let page_size = u32::try_from(rustix::param::page_size()).expect("a page is small");
    Spec { answer, io_uring_pass, identity: None, page_size }
}

fn instructions(program: &Program) -> Vec<Instruction> {
    let convert = |i: &synconce_filter::Instruction| Instruction {
        code: i.code,
        jump_true: i.jt,
        jump_false: i.jf,
        operand: i.k,
    };
    program.instructions().iter().map(convert).collect()
}
