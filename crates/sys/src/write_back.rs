//! Write-back of files (`sync_file_range(2)`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
#[cfg(feature = "mutants")]
use {
    crate::file_sync::write_pages,
    std::fs::{File, read_dir},
    std::os::fd::AsFd,
    std::path::Path,
};

/// Checks whether a write-back of `file` has failed since its descriptor was opened or last
/// reported an error (errseq; Linux 6.18, fs/sync.c). Writes nothing and does not block: the
/// range is beyond the end of any file.
///
/// # Errors
/// The error of the write-back. The descriptor reports each error once.
pub fn error_of(file: BorrowedFd<'_>) -> io::Result<()> {
    const BEYOND: i64 = i64::MAX - 1;
    // SAFETY: takes no pointers.
    let done = unsafe {
        libc::sync_file_range(file.as_raw_fd(), BEYOND, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Does what a wrong commit would do: starts the write-back of every file below `path` and
/// waits for it (sync_file_range(2), which makes neither metadata nor the disk's cache
/// durable).
#[cfg(feature = "mutants")]
pub fn all_below(path: &Path) {
    for entry in read_dir(path).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            all_below(&entry.path());
        } else if let Some(file) = kind.is_file().then(|| File::open(entry.path()).ok()).flatten() {
            let _ = write_pages(file.as_fd());
        }
    }
}
