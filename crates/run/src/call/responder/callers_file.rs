//! A duplicate of a caller's descriptor.

use crate::call::policy::PendingCall;
use crate::process::process_tree::process_of;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::OwnedFd;
use synconce_sys::descriptors::have_same_descriptors;

/// `PIDFD_THREAD` of pidfd_open(2), Linux 6.9; rustix does not define it.
const PIDFD_THREAD: u32 = 0o200;

/// Returns a duplicate of the descriptor that the call is about.
///
/// # Errors
/// Those of [`file_of`]; `EBADF` if the descriptor is closed.
pub(crate) fn callers_file(pending: &PendingCall) -> Result<OwnedFd, Errno> {
    let fd = synconce_filter::args::descriptor(pending.notification.args[0]);
    file_of(pending.notification.thread, fd)
}

/// Returns a duplicate of descriptor `fd` of `thread` (pidfd_getfd(2), Linux 5.6).
///
/// # Errors
/// Those of pidfd_open(2) and pidfd_getfd(2). Before Linux 6.9 a thread with descriptors of its own
/// (unshare(2), CLONE_FILES) is an error, unless it is the first of its process.
pub(super) fn file_of(thread: u32, fd: i32) -> Result<OwnedFd, Errno> {
    let of_a_thread = PidfdFlags::from_bits_retain(PIDFD_THREAD);
    let pidfd = pidfd_open(pid(thread)?, of_a_thread).or_else(|_| of_process(thread))?;
    pidfd_getfd(pidfd, fd, PidfdGetfdFlags::empty())
}

/// Returns the first thread of the process of `thread`, if both have one table of descriptors. The table
/// cannot change: `thread` waits for an answer.
fn of_process(thread: u32) -> Result<OwnedFd, Errno> {
    let first = process_of(thread).ok_or(Errno::SRCH)?;
    if first != thread && !have_same_descriptors(first, thread) {
        return Err(Errno::INVAL);
    }
    pidfd_open(pid(first)?, PidfdFlags::empty())
}

fn pid(id: u32) -> Result<Pid, Errno> {
    Pid::from_raw(id.cast_signed()).ok_or(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::gettid;
    use std::thread;

    #[test]
    fn another_thread_is_found_by_the_first_one_if_both_have_the_same_descriptors() {
        fn found() -> Result<OwnedFd, Errno> {
            of_process(gettid().as_raw_pid().cast_unsigned())
        }
        assert!(found().is_ok());
        assert!(thread::spawn(found).join().unwrap().is_ok());
    }
}
