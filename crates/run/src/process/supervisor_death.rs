//! What the frontend does if the supervisor is killed: it lets every call go to the kernel
//! until the command has ended, so that nothing hangs and nothing is held.

use crate::call::serve::serve;
use crate::process::{environment, limits, process_tree};
use crate::report::run_error::RunError;
use rustix::io::Errno;
use rustix::process::Signal;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use synconce_sys::handover::Handover;
use synconce_sys::notify::{Answer, Listener};
use synconce_sys::process::{self, ChildChange, Side, WaitFor, Whose};
use synconce_sys::trace::{Mask, Stop, Tracee};

const MOMENT: Duration = Duration::from_millis(1);
/// The timeout for restoring the signal masks of stopped threads, and for the end of a process.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reaps `supervisor`, which was killed, and returns the error of the run.
///
/// A filter of others can kill the process that calls seccomp(2) to start the command. Before
/// Linux 5.16 the core dump of that process kills each process with the same memory, with the same
/// status (`zap_threads`). The supervisor is such a process.
pub(crate) fn error(supervisor: u32, had_started: bool) -> RunError {
    match end_of(supervisor) {
        Some(ChildChange::Killed(signal)) if !had_started && signal == Signal::SYS.as_raw() => {
            RunError::Filter(Errno::PERM.raw_os_error())
        }
        _ => RunError::SupervisorDied { started: had_started },
    }
}

/// Reaps `supervisor`. Its socket is closed a moment before it can be reaped.
fn end_of(supervisor: u32) -> Option<ChildChange> {
    let end = Instant::now() + PATIENCE;
    let ends = WaitFor { ends: true, ..WaitFor::default() };
    loop {
        match process::wait(Whose::Id(supervisor), ends) {
            Ok(None) if Instant::now() < end => thread::sleep(MOMENT),
            ended => return ended.ok().flatten().map(|(_, change)| change),
        }
    }
}

/// Forks a process that lets the calls of all processes under the filter of `listener`
/// continue.
///
/// The supervisor may have received calls near the id in `handover` without answering them.
/// Those calls are answered here.
pub(crate) fn release(listener: &Listener, handover: &Handover) {
    for id in handover.candidates() {
        // Most of these ids have no call, or a call that was never received.
        let _ = listener.answer(id, Answer::Continue);
    }
    leave_server(listener);
}

/// Restores the signal masks of threads that the supervisor had blocked during a call. Works
/// on a thread that ends by itself, because a traced thread may be waiting for a disk. Leaves
/// the command's exit status for the caller.
pub(crate) fn restore_masks(handover: &Handover, command: Option<u32>) -> Option<JoinHandle<()>> {
    let masks = handover.masks();
    if masks.is_empty() {
        return None;
    }
    let restore_all = move || {
        for (thread, mask) in masks {
            if let Some(tracee) = seize(thread) {
                restore_mask(tracee, mask, command.unwrap_or(0));
            }
        }
    };
    // Without a thread the masks stay as they are; there is no other way to restore them.
    thread::Builder::new().spawn(restore_all).ok()
}

/// Waits for the thread of [`restore_masks`], but for no longer than `PATIENCE`.
pub(crate) fn wait_for(masks: Option<JoinHandle<()>>) {
    let end = Instant::now() + PATIENCE;
    while masks.as_ref().is_some_and(|masks| !masks.is_finished()) && Instant::now() < end {
        thread::sleep(MOMENT);
    }
}

/// Traces the thread `id`. Retries on EPERM, because the supervisor's exit may be visible a
/// moment before its tracees are detached.
fn seize(id: u32) -> Option<Tracee> {
    let end = Instant::now() + PATIENCE;
    loop {
        match Tracee::seize(id) {
            Ok(tracee) => return Some(tracee),
            Err(error)
                if Errno::from_io_error(&error) == Some(Errno::PERM) && Instant::now() < end =>
            {
                thread::sleep(MOMENT);
            }
            Err(_) => return None,
        }
    }
}

/// Restores the thread's mask, unless the thread has changed the mask itself.
fn restore_mask(tracee: Tracee, mask: Mask, command: u32) {
    let stop = tracee.interrupt().and_then(|()| tracee.wait());
    if tracee.mask().is_ok_and(|now| now == Mask::ALL) {
        // An error means that the thread has exited.
        let _ = tracee.set_mask(mask);
    }
    let signal = if let Ok(Stop::Signal(signal)) = stop { signal } else { 0 };
    tracee.let_go(signal, command);
}

/// Waits for the end of the command `pid`, now a child of this process, and reaps children
/// that exit before. Returns at once if the supervisor had reaped the command.
pub(crate) fn reap(pid: u32) {
    let peek = WaitFor { ends: true, block: true, peek: true, ..WaitFor::default() };
    let take = WaitFor { ends: true, ..WaitFor::default() };
    while process_tree::exists(pid)
        && let Ok(Some((ended, change))) = process::wait(Whose::Any, peek)
    {
        if !matches!(change, ChildChange::Exited(_) | ChildChange::Killed(_)) {
            // The thread is stopped while its mask is restored.
            thread::sleep(MOMENT);
            continue;
        }
        let _ = process::wait(Whose::Id(ended), take);
        if ended == pid {
            break;
        }
    }
}

/// Forks a process that serves until the last caller has exited. If fork(2) fails, a thread
/// serves as long as this process lives.
fn leave_server(listener: &Listener) {
    match process::fork() {
        Ok(Side::Child) => {
            process::leave_session();
            limits::raise();
            environment::forget();
            serve(listener, &Weak::new());
            process::exit_now(0);
        }
        Ok(Side::Parent(_)) => {}
        Err(_) => serve_in_thread(listener),
    }
}

fn serve_in_thread(listener: &Listener) {
    let Ok(copy) = rustix::io::dup(listener) else {
        return;
    };
    let listener = Arc::new(Listener::from(copy));
    // Without a thread the calls fail with ENOSYS once this process exits, which is visible.
    let _ = thread::Builder::new().spawn(move || serve(&listener, &Weak::new()));
}
