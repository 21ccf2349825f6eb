//! Write-back of files (`sync_file_range(2)`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
#[cfg(feature = "mutants")]
use {
    std::fs::{File, read_dir},
    std::path::Path,
};

/// Whether a write-back of `file` has failed since its descriptor was opened or last told so
/// (errseq; Linux 6.18, fs/sync.c). Nothing is written and nothing waited for: the range lies
/// beyond what a file has.
///
/// # Errors
/// The error of the write-back, which is told once.
pub fn error_of(file: BorrowedFd<'_>) -> io::Result<()> {
    const BEYOND: i64 = i64::MAX - 1;
    // SAFETY: takes no pointers.
    let done = unsafe {
        libc::sync_file_range(file.as_raw_fd(), BEYOND, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a wrong commit would do. Starts the write-back of every file below `path` and waits for it
/// (`sync_file_range(2)`, which makes neither metadata nor the disk's cache durable).
#[cfg(feature = "mutants")]
pub fn all_below(path: &Path) {
    for entry in read_dir(path).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            all_below(&entry.path());
        } else if let Some(file) = kind.is_file().then(|| File::open(entry.path()).ok()).flatten() {
            let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER;
            // SAFETY: takes no pointers.
            unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) };
        }
    }
}
