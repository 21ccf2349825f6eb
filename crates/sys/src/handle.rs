//! Handles of files: opens a file by one, and reads what is in one.

use crate::check;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `MAX_HANDLE_SZ` (linux/fcntl.h): the size of the longest handle.
const LONGEST: usize = 128;

/// `FILEID_INO32_GEN` (linux/exportfs.h): the inode number and the generation, 4 bytes each.
const INODE_AND_GENERATION: i32 = 1;

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

/// Returns the generation of an open file, which may be one of `O_PATH`: the next file with the
/// inode number has another generation. `None` if the handle has none: XFS and btrfs have handles
/// of their own types, an overlay has no handles, and a sandbox may refuse the call.
pub fn generation(file: BorrowedFd<'_>) -> Option<u32> {
    let mut handle = Handle { length: LONGEST as u32, kind: 0, bytes: [0; LONGEST] };
    let mut mount: libc::c_int = 0;
    // SAFETY: the kernel writes the number of bytes in `length` at most, and the id of the mount.
    check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_raw_fd(),
            CStr::as_ptr(c""),
            &raw mut handle,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    })
    .ok()?;
    let has_one = handle.kind == INODE_AND_GENERATION && handle.length == 8;
    let [.., a, b, c, d] = *handle.bytes.first_chunk::<8>()?;
    has_one.then_some(u32::from_ne_bytes([a, b, c, d]))
}
