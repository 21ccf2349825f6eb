//! Lets a command's own `execve` continue where the filter stops that call.
//!
//! The launching thread is suspended until the child has executed, so another thread has to
//! answer meanwhile.

use super::Stage;
use crate::handover::Handover;
use crate::notify::{Answer, Listener, Notification};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::thread::{Builder, JoinHandle};

/// A thread that lets the execve(2) calls of one launch continue.
pub(super) struct ExecWatcher {
    thread: JoinHandle<Option<Notification>>,
    /// Closed when the launch is over.
    over: PipeWriter,
}

impl ExecWatcher {
    /// Starts the thread for the child of `stage`, whose listener stays open until
    /// [`ExecWatcher::finish`]. Records the calls that it receives in `handover`.
    ///
    /// # Errors
    /// No thread or pipe can be created.
    pub(super) fn start(stage: Arc<Stage>, handover: Arc<Handover>) -> io::Result<Self> {
        let (reader, over) = io::pipe()?;
        let exec_watcher = Builder::new().name("exec_watcher".into()).stack_size(64 * 1024);
        let thread = exec_watcher.spawn(move || attend(&stage, &reader, handover))?;
        Ok(Self { thread, over })
    }

    /// Ends the thread after the launch. Returns a call of the executed command that the
    /// thread received and that still waits for its answer.
    pub(super) fn finish(self) -> Option<Notification> {
        drop(self.over);
        self.thread.join().ok().flatten()
    }
}

fn attend(stage: &Stage, over: &PipeReader, handover: Arc<Handover>) -> Option<Notification> {
    let listener = wait_for_listener(&stage.listener, over)?.noting(handover);
    loop {
        let mut fds = [PollFd::new(&listener, PollFlags::IN), PollFd::new(over, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            // EINTR only repeats the loop.
            continue;
        }
        if !fds[0].revents().contains(PollFlags::IN) {
            return None;
        }
        let Ok(call) = listener.receive() else { return None };
        match call {
            // A shell may have executed a second program already.
            Some(call) if stage.has_executed() => return Some(call),
            // An error means that the caller has exited.
            Some(call) => drop(listener.answer(call.id, Answer::Continue)),
            None => {}
        }
    }
}

/// Returns a copy of the listener, or `None` if the launch ended without a listener.
fn wait_for_listener(listener: &AtomicI32, over: &PipeReader) -> Option<Listener> {
    let soon = Timespec { tv_sec: 0, tv_nsec: 20_000 };
    while listener.load(SeqCst) < 0 {
        let mut fds = [PollFd::new(over, PollFlags::IN)];
        if poll(&mut fds, Some(&soon)).is_ok_and(|ready| ready > 0) {
            break;
        }
    }
    let fd = listener.load(SeqCst);
    // SAFETY: the child made the descriptor in the shared table, and it stays open until this
    // thread has ended.
    let fd = (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })?;
    Some(Listener::from(fd.try_clone_to_owned().ok()?))
}
