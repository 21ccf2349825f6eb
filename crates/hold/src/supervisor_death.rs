//! When the supervisor is killed: the frontend lets every call go to the kernel, so
//! that nothing hangs and nothing is held, until the command has ended.

use crate::process_tree;
use crate::serve::serve;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use synconce_sys::handover::Handover;
use synconce_sys::notify::{Answer, Listener};
use synconce_sys::process::{self, Change, Side, WaitFor, Whose};
use synconce_sys::trace::{Mask, Stop, Tracee};

const EPERM: i32 = 1;
const MOMENT: Duration = Duration::from_millis(1);
/// For threads that are stopped to get their masks back.
const PATIENCE: Duration = Duration::from_secs(1);

/// Leaves a process behind that lets the calls of all that are under the filter
/// of `listener` go on.
///
/// Calls about that of `handover` were received by the supervisor, and if it did not
/// answer one, nobody would.
pub(crate) fn release(listener: &Listener, handover: &Handover) {
    for id in handover.candidates() {
        // For most there is no such call, or it was never received.
        let _ = listener.answer(id, Answer::Continue);
    }
    leave_server(listener);
}

/// Gives threads of the run their signal masks back, which the supervisor had
/// blocked for the length of a call, in a thread that ends by itself: one of them
/// may wait for a disk first. The end of the command is left to our caller.
pub(crate) fn give_masks_back(handover: &Handover, command: Option<u32>) -> Option<JoinHandle<()>> {
    let masks = handover.masks();
    if masks.is_empty() {
        return None;
    }
    let give_all = move || {
        for (thread, mask) in masks {
            if let Some(tracee) = seize(thread) {
                give_mask_back(tracee, mask, command.unwrap_or(0));
            }
        }
    };
    // Without a thread they stay as they are; nothing else can be done about it.
    thread::Builder::new().spawn(give_all).ok()
}

/// Waits for what [`give_masks_back`] began, but not for a disk.
pub(crate) fn wait_for(masks: Option<JoinHandle<()>>) {
    let end = Instant::now() + PATIENCE;
    while masks.as_ref().is_some_and(|masks| !masks.is_finished()) && Instant::now() < end {
        thread::sleep(MOMENT);
    }
}

/// Traces the thread `id`. The supervisor may be seen to have ended a moment before its
/// traces have.
fn seize(id: u32) -> Option<Tracee> {
    let end = Instant::now() + PATIENCE;
    loop {
        match Tracee::seize(id) {
            Ok(tracee) => return Some(tracee),
            Err(error) if error.raw_os_error() == Some(EPERM) && Instant::now() < end => {
                thread::sleep(MOMENT);
            }
            Err(_) => return None,
        }
    }
}

/// The thread goes on without the supervisor, and may have a mask of its own again.
fn give_mask_back(tracee: Tracee, mask: Mask, command: u32) {
    let stop = tracee.interrupt().and_then(|()| tracee.wait());
    if tracee.mask().is_ok_and(|now| now == Mask::ALL) {
        // An error means that it is gone.
        let _ = tracee.set_mask(mask);
    }
    let signal = if let Ok(Stop::Signal(signal)) = stop { signal } else { 0 };
    tracee.let_go(signal, command);
}

/// Waits for the end of the command `pid`, whose parent is us now, and reaps what ends
/// before. Returns at once if the supervisor had reaped the command.
pub(crate) fn reap(pid: u32) {
    let peek = WaitFor { ends: true, block: true, peek: true, ..WaitFor::default() };
    let take = WaitFor { ends: true, ..WaitFor::default() };
    while process_tree::exists(pid)
        && let Ok(Some((ended, change))) = process::wait(Whose::Any, peek)
    {
        if !matches!(change, Change::Exited(_) | Change::Killed(_)) {
            // It is getting its mask back.
            thread::sleep(MOMENT);
            continue;
        }
        let _ = process::wait(Whose::Id(ended), take);
        if ended == pid {
            break;
        }
    }
}

/// Forks a process that serves until the last caller is gone; where that fails,
/// a thread serves as long as we live.
fn leave_server(listener: &Listener) {
    match process::fork() {
        Ok(Side::Child) => {
            process::leave_session();
            serve(listener);
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
    // Without a thread the calls fail with ENOSYS once we end: loud, not silent.
    let _ = thread::Builder::new().spawn(move || serve(&listener));
}
