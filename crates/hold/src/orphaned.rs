//! When the supervisor is killed: the face lets every call go to the kernel, so
//! that nothing hangs and nothing is held, until the command has ended.

use crate::serve::serve;
use std::sync::Arc;
use std::thread;
use synconce_sys::last_call::LastCall;
use synconce_sys::notify::{Answer, Listener};
use synconce_sys::process::{self, Change, Side, WaitFor, Whose};

/// Leaves a process behind that lets the calls of all that are under the filter
/// of `listener` go on.
///
/// Calls about `last_call` were received by the supervisor, and if it did not
/// answer one, nobody would.
pub(crate) fn release(listener: &Listener, last_call: &LastCall) {
    for id in last_call.candidates() {
        // For most there is no such call, or it was never received.
        let _ = listener.answer(id, Answer::Continue);
    }
    leave_server(listener);
}

/// Waits for the end of the command `pid`, which is ours now that its parent is
/// gone, and reaps what ends before.
pub(crate) fn reap(pid: u32) {
    let options = WaitFor { ends: true, block: true, ..WaitFor::default() };
    while let Ok(Some((ended, change))) = process::wait(Whose::Any, options) {
        if ended == pid && matches!(change, Change::Exited(_) | Change::Killed(_)) {
            break;
        }
    }
}

/// Forks a process that serves until the last caller is gone; where that fails,
/// a thread serves as long as we live.
fn leave_server(listener: &Listener) {
    match process::fork() {
        Ok(Side::Child) => {
            crate::lifecycle::leave_session();
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
