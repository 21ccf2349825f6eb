//! What a wrong commit would do: only with the feature `mutants`.

use std::fs::{File, read_dir};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Starts the write-back of every file below `path` and waits for it
/// (`sync_file_range(2)`, which makes neither metadata nor the disk's cache durable).
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
