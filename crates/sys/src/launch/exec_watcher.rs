//! Lets a command's own `execve` continue where the filter stops that call.
//!
//! The launching thread is suspended until the child has executed, so another thread has to
//! answer meanwhile.

use crate::handover::Handover;
use crate::notify::{Answer, Listener, Notification};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::thread::{Builder, JoinHandle};

/// The child's progress, for the thread of [`ExecWatcher`]. glibc's clone(3) accepts
/// `CLONE_CHILD_CLEARTID`; musl's refuses it from 1.2.5 on.
pub(super) struct Progress {
    /// The child's listener; -1 until there is one.
    pub(super) listener: AtomicI32,
    /// Not 0 while the child shares the parent's memory (`CLONE_CHILD_CLEARTID`): the kernel
    /// clears it when the child leaves that memory (`mm_release` in kernel/fork.c), before the
    /// first call of the executed program.
    pub(super) shares_memory: AtomicI32,
}

impl Progress {
    fn has_executed(&self) -> bool {
        self.shares_memory.load(SeqCst) == 0
    }
}

/// A thread that lets the execve(2) calls of one launch continue.
pub(super) struct ExecWatcher {
    thread: JoinHandle<Option<Notification>>,
    /// Closed when the launch is over.
    over: PipeWriter,
}

impl ExecWatcher {
    /// Starts the thread for the child of `progress`, whose listener stays open until
    /// [`ExecWatcher::finish`]. Records the calls that it receives in `handover`.
    ///
    /// # Errors
    /// No thread or pipe can be created.
    pub(super) fn start(progress: Arc<Progress>, handover: Arc<Handover>) -> io::Result<Self> {
        let (reader, over) = io::pipe()?;
        let exec_watcher = Builder::new().name("exec_watcher".into()).stack_size(64 * 1024);
        let thread = exec_watcher.spawn(move || attend(&progress, &reader, handover))?;
        Ok(Self { thread, over })
    }

    /// Ends the thread after the launch. Returns a call of the executed command that the
    /// thread received and that still waits for its answer.
    pub(super) fn finish(self) -> Option<Notification> {
        drop(self.over);
        self.thread.join().ok().flatten()
    }
}

fn attend(progress: &Progress, over: &PipeReader, handover: Arc<Handover>) -> Option<Notification> {
    let listener = wait_for_listener(&progress.listener, over)?.noting(handover);
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
            Some(call) if progress.has_executed() => return Some(call),
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
