//! sync_file_range(2) of a file, and the number of bytes that a sync of the file has to write.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Calls sync_file_range(2) on `fd`, with `offset` and `length` in bytes.
///
/// # Errors
/// Those of sync_file_range(2).
pub fn sync_file_range(fd: BorrowedFd<'_>, offset: i64, length: i64, flags: u32) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(libc::c_long::from(unsafe {
        libc::sync_file_range(fd.as_raw_fd(), offset, length, flags)
    }))
    .map(drop)
}

/// Writes all dirty pages of `fd`, a file or block device, and waits for them. Flushes no disk.
///
/// # Errors
/// Those of sync_file_range(2).
pub fn write_pages(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(fd, 0, 0, flags)
}

/// The number of cachestat(2), Linux 6.5, on every architecture but alpha and MIPS.
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat` (include/uapi/linux/mman.h): numbers of pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Returns how many bytes of the file `fd` are dirty or being written back, in whole pages. Returns
/// `None` before Linux 6.5, and if the kernel refuses, as for a file that the caller may not write.
pub fn unwritten_bytes(fd: BorrowedFd<'_>) -> Option<u64> {
    // From offset 0; the length 0 means "to the end".
    let range = [0_u64; 2];
    let mut pages = Cachestat::default();
    // SAFETY: the kernel reads two integers and writes one `struct cachestat`.
    let done =
        unsafe { libc::syscall(CACHESTAT, fd.as_raw_fd(), range.as_ptr(), &raw mut pages, 0_u32) };
    (done == 0).then(|| (pages.dirty + pages.writeback) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn bytes_that_were_written_are_unwritten_until_a_sync() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        let before = unwritten_bytes(file.as_fd());
        file.sync_all().unwrap();
        let after = unwritten_bytes(file.as_fd());
        // On a file system in memory, all pages stay dirty.
        let pages = 10_000_u64.next_multiple_of(rustix::param::page_size() as u64);
        assert!(before.is_none_or(|bytes| bytes == pages), "{before:?}");
        assert!(after <= before, "{before:?} {after:?}");
        assert!(sync_file_range(file.as_fd(), 0, 0, 2).is_ok());
        assert!(sync_file_range(file.as_fd(), -1, 0, 2).is_err());
    }
}
