//! Files opened by the handle that a file system gave them.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `MAX_HANDLE_SZ` (linux/fcntl.h): no handle is longer.
const LONGEST: usize = 128;

/// `struct file_handle` (open_by_handle_at(2)), with the room it can take.
#[repr(C)]
struct Handle {
    length: u32,
    kind: i32,
    bytes: [u8; LONGEST],
}

/// A descriptor (`O_PATH`) of the file with the handle `bytes` of type `kind` on the
/// file system that `mount` is on. Takes `CAP_DAC_READ_SEARCH` of the first user
/// namespace.
///
/// # Errors
/// `ESTALE` when there is no such file; `EPERM`; `EINVAL` for what is no handle.
pub fn open(mount: BorrowedFd<'_>, kind: u8, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut handle =
        Handle { length: bytes.len() as u32, kind: i32::from(kind), bytes: [0; LONGEST] };
    let room = handle.bytes.get_mut(..bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(bytes);
    // SAFETY: the kernel reads a header and as many bytes behind it as that says.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw const handle,
            libc::O_PATH | libc::O_CLOEXEC,
        )
    })?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
