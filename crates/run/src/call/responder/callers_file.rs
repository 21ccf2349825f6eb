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
/// Those of pidfd_open(2) and pidfd_getfd(2). Before Linux 6.9 a thread that is not the first of
/// its process is an error if it has descriptors of its own (unshare(2), CLONE_FILES), or if
/// kcmp(2) is refused.
pub(super) fn file_of(thread: u32, fd: i32) -> Result<OwnedFd, Errno> {
    let id = pid(thread)?;
    let opened = pidfd_open(id, PidfdFlags::from_bits_retain(PIDFD_THREAD));
    let opened = opened.or_else(|error| match error {
        // The flag is unknown.
        Errno::INVAL => pidfd_open(id, PidfdFlags::empty()),
        other => Err(other),
    });
    match opened {
        Ok(pidfd) => pidfd_getfd(pidfd, fd, PidfdGetfdFlags::empty()),
        // It is not the first thread: EINVAL, or ENOENT from Linux 6.6 on.
        Err(error @ (Errno::INVAL | Errno::NOENT)) => shared_file(thread, fd, error),
        Err(error) => Err(error),
    }
}

/// Does what [`file_of`] does, by the first thread of the process of `thread`, if both have one
/// table of descriptors; else returns `error`.
fn shared_file(thread: u32, fd: i32, error: Errno) -> Result<OwnedFd, Errno> {
    let first = process_of(thread).ok_or(error)?;
    let pidfd = pidfd_open(pid(first)?, PidfdFlags::empty())?;
    let file = pidfd_getfd(pidfd, fd, PidfdGetfdFlags::empty())?;
    // Looked at last: the first thread can leave the table, and no thread can join one later.
    if have_same_descriptors(first, thread) { Ok(file) } else { Err(error) }
}

fn pid(id: u32) -> Result<Pid, Errno> {
    Pid::from_raw(id.cast_signed()).ok_or(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::gettid;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::thread;

    #[test]
    fn a_file_of_another_thread_is_found_by_the_first_one() {
        let null = File::open("/dev/null").unwrap();
        let fd = null.as_raw_fd();
        let this = || gettid().as_raw_pid().cast_unsigned();
        let shared = move |fd| shared_file(this(), fd, Errno::INVAL).map(drop);
        let [open, closed] =
            [fd, 9_999].map(|fd| thread::spawn(move || shared(fd)).join().unwrap());
        assert_eq!((open, closed), (Ok(()), Err(Errno::BADF)));
        assert!(file_of(this(), fd).is_ok());
    }
}
