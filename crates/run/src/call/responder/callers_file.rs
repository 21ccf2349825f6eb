//! A duplicate of a caller's descriptor.

use crate::call::policy::PendingCall;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::OwnedFd;

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
/// Those of pidfd_open(2) and pidfd_getfd(2). Before Linux 6.9 a thread that is not the first
/// of its process is an error: it may have descriptors of its own (unshare(2), CLONE_FILES).
pub(super) fn file_of(thread: u32, fd: i32) -> Result<OwnedFd, Errno> {
    let thread = Pid::from_raw(thread.cast_signed()).ok_or(Errno::SRCH)?;
    let of_a_thread = PidfdFlags::from_bits_retain(PIDFD_THREAD);
    let thread =
        pidfd_open(thread, of_a_thread).or_else(|_| pidfd_open(thread, PidfdFlags::empty()))?;
    pidfd_getfd(thread, fd, PidfdGetfdFlags::empty())
}
