//! The write cache of the disk of an XFS.
//!
//! syncfs(2) flushes the cache only by a write of the log (`xfs_fs_sync_fs`, Linux 6.18). The log
//! has nothing to write for overwritten blocks if another sync has already written the times of
//! their files.

use super::{below, device_of};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use synconce_probe::device;

/// Flushes the disk of `handle`: as root by its block device, else by a new file without a name in
/// the directory `handle`, or in one of `owned` and the directories above it. fsync(2) of a file
/// flushes the disk, also if nothing was written to the file (`xfs_file_fsync`). fsync(2) of a
/// directory does not.
///
/// # Errors
/// Those of fsync(2). A user without the right to any of these files flushes nothing.
pub(super) fn flush(handle: BorrowedFd<'_>, owned: &[PathBuf]) -> Result<(), Errno> {
    if is_file(handle)? {
        return rustix::fs::fsync(handle);
    }
    let disk = device::node(device_of(handle)?).and_then(|path| open_disk(&path));
    let unnamed = || {
        let paths = [Path::new(".")].into_iter().chain(below(owned));
        paths.into_iter().find_map(|path| make_unnamed(handle, path))
    };
    disk.or_else(unnamed).map_or(Ok(()), rustix::fs::fsync)
}

fn is_file(handle: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode) == FileType::RegularFile)
}

fn open_disk(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()
}

/// Makes a file without a name in the directory `path` below `directory`, on the same mount.
fn make_unnamed(directory: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(directory, path, flags, Mode::RUSR, within).ok()
}
