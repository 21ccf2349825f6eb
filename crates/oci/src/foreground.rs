//! Executes the runtime in a child process and waits until the step ends.
//!
//! To an engine that calls `run`, the pid of this process is the runtime's. So signals are passed
//! on to the runtime, and this process ends as the runtime ends.

use crate::runtime::{RuntimeEnd, Tried};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use synconce_sys::process::{self, ChildChange, Side, WaitFor, Whose};
use synconce_sys::signals::{self, SignalReader, SignalSet};
use synconce_sys::{origin, reason};

/// Executes `runtime` with `arguments`, and returns how the runtime ended.
///
/// # Errors
/// The runtime could not be started.
pub(crate) fn run(runtime: &Path, arguments: &[OsString], tried: &Tried) -> io::Result<RuntimeEnd> {
    origin::forget_runtime_stdio();
    let set = SignalSet::from_numbers(&signals::passed_on());
    let mask = set.block();
    let signals = SignalReader::new(&set)?;
    let parent = std::process::id();
    match process::fork()? {
        Side::Child => {
            mask.set();
            become_runtime(runtime, arguments, tried, parent)
        }
        Side::Parent(child) => {
            // A pipe must close when the copies of the container close.
            process::give_up_inherited(Some(rustix::stdio::stderr()));
            attend(child, &signals)
        }
    }
}

fn become_runtime(runtime: &Path, arguments: &[OsString], tried: &Tried, parent: u32) -> ! {
    // An engine that is killed takes the runtime with it (PR_SET_PDEATHSIG of go-runc).
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The parent may have ended before the call.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get().cast_unsigned() != parent) {
        process::exit_now(1);
    }
    let mark = (Tried::VARIABLE, tried.with(runtime, std::process::id()));
    let error = process::replace_by(runtime, arguments, mark);
    let (path, why) = (runtime.display(), reason(&error));
    let _ = writeln!(io::stderr(), "synconce-oci: cannot execute {path}: {why}");
    process::exit_now(process::FAILED)
}

/// Waits until the process `child` has ended, and passes signals on to it meanwhile.
fn attend(child: u32, signals: &SignalReader) -> io::Result<RuntimeEnd> {
    // Without a pidfd (an outer filter may refuse pidfd_open(2)) no signals are passed on.
    let _ = pass_signals(child, signals);
    let ends = WaitFor { ends: true, block: true, ..WaitFor::default() };
    Ok(match process::wait(Whose::Id(child), ends)? {
        Some((_, ChildChange::Killed(signal))) => RuntimeEnd::Killed(signal),
        Some((_, ChildChange::Exited(code))) => RuntimeEnd::Exited(code as u8),
        _ => RuntimeEnd::Failed("cannot find how the runtime ended".to_owned()),
    })
}

/// Passes signals on to the process `child` until it has ended.
fn pass_signals(child: u32, signals: &SignalReader) -> io::Result<()> {
    let id = Pid::from_raw(child.cast_signed()).ok_or(rustix::io::Errno::SRCH)?;
    let end = pidfd_open(id, PidfdFlags::empty())?;
    loop {
        // A signal of the terminal reaches the child by itself.
        while let Some(received) = signals.next() {
            if received.is_for(child) {
                signals::send(child, received.signal);
            }
        }
        let mut fds = [PollFd::new(&end, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
    }
}
