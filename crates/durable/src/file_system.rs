//! The sync of a file system, with every error that the kernel still has.

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use synconce_sys::btrfs;
use synconce_sys::overlay::kernel_is_at_least;

/// Syncs the file system of the directory `handle`.
///
/// syncfs(2) alone returns success on a file system that an error made read-only, or shut down
/// before Linux 5.17 (`sync_filesystem`).
///
/// # Errors
/// The kernel reported a write-back error, or has stopped writing the file system.
pub fn sync(handle: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::syncfs(handle)?;
    let flags = rustix::fs::fstatvfs(handle)?.f_flag;
    if flags.contains(StatVfsMountFlags::RDONLY) || !kernel_is_at_least(5, 17) {
        return find_stop(handle);
    }
    Ok(())
}

/// Returns the error of a file system that has stopped writing.
fn find_stop(handle: BorrowedFd<'_>) -> Result<(), Errno> {
    // fsync(2) of btrfs has nothing to do for a directory that did not change.
    if btrfs::is_btrfs(handle).unwrap_or(false) {
        btrfs::sync(handle).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    }
    match rustix::fs::fsync(handle) {
        // The mount point is a special file.
        Err(Errno::INVAL) => Ok(()),
        result => result,
    }
}
