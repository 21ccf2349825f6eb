//! When the supervisor is killed: the face lets every call go to the kernel, so
//! that nothing hangs and nothing is held, until the command has ended.

use crate::serve::serve;
use std::sync::Arc;
use std::thread;
use synconce_sys::last_call::LastCall;
use synconce_sys::notify::{Answer, Listener};
use synconce_sys::process::{self, Change, Side, WaitFor, Whose};

/// Serves the command `pid`, which is ours now that its parent is gone, to its
/// end, and leaves a process behind for those that outlive it.
///
/// Calls about `last_call` were received by the supervisor, and if it did not
/// answer one, nobody would.
pub(crate) fn finish(pid: u32, listener: Option<Listener>, last_call: &LastCall) {
    if let Some(listener) = listener {
        for id in last_call.candidates() {
            // For most there is no such call, or it was never received.
            let _ = listener.answer(id, Answer::Continue);
        }
        leave_server(&listener);
    }
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
