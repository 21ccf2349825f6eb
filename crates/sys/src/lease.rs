//! Leases of files (fcntl(2), F_SETLEASE).

use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd};

/// Whether the regular file `file`, a descriptor for reading, is open for writing anywhere: the kernel
/// then gives no read lease. That includes what /proc does not show, such as processes outside of this
/// pid namespace, descriptors in a socket, and files of an io_uring.
///
/// # Errors
/// `EACCES` without CAP_LEASE, if the file is of another user; `EINVAL` where there are no leases.
pub fn is_open_for_writing(file: impl AsFd) -> Result<bool> {
    let file = file.as_fd().as_raw_fd();
    // SAFETY: fcntl takes no pointer here.
    let set = |lease: libc::c_int| match unsafe { libc::fcntl(file, libc::F_SETLEASE, lease) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    };
    match set(libc::F_RDLCK) {
        Err(Errno::AGAIN) => Ok(true),
        other => other.and_then(|()| set(libc::F_UNLCK)).map(|()| false),
    }
}
