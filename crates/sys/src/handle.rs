//! Opens files by their handles.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `MAX_HANDLE_SZ` (linux/fcntl.h): the size of the longest handle.
const LONGEST: usize = 128;

/// `struct file_handle` (open_by_handle_at(2)), with space for the longest handle.
#[repr(C)]
struct Handle {
    length: u32,
    kind: i32,
    bytes: [u8; LONGEST],
}

/// Opens (`O_PATH`) the file with the handle `bytes` of type `kind` on the file system of
/// `mount`. Needs `CAP_DAC_READ_SEARCH` in the initial user namespace.
///
/// # Errors
/// `ESTALE` if the file does not exist; `EPERM`; `EINVAL` if `bytes` is no handle.
pub fn open(mount: BorrowedFd<'_>, kind: u8, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut handle =
        Handle { length: bytes.len() as u32, kind: i32::from(kind), bytes: [0; LONGEST] };
    let room = handle.bytes.get_mut(..bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(bytes);
    // SAFETY: the kernel reads the header and the number of bytes given there.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw const handle,
            libc::O_PATH | libc::O_CLOEXEC,
        )
    })?;
    // SAFETY: a new descriptor that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
