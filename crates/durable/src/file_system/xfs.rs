//! The write caches of the disks of an XFS.
//!
//! syncfs(2) flushes the disk of the data only by a write of the log (`xfs_fs_sync_fs`, Linux
//! 6.18). The log has nothing to write for overwritten blocks if another sync has already written
//! the times of their files. syncfs(2) never flushes the realtime device; fsync(2) of a file on the
//! realtime device does.

use super::{below, device_of, disk};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use synconce_probe::mounts::{self, DeviceId};

/// Flushes the disks of `handle`: as root by their block devices, else by a new file without a name
/// in the directory `handle`, or in one of `owned` and the directories above it. fsync(2) of a file
/// flushes the disk, also if nothing was written to the file (`xfs_file_fsync`). fsync(2) of a
/// directory does not.
///
/// # Errors
/// Those of fsync(2). A user without the right to any of these files flushes nothing. A user
/// without the right to the block devices does not flush the realtime device.
pub(super) fn flush(handle: BorrowedFd<'_>, owned: &[PathBuf]) -> Result<(), Errno> {
    let device = device_of(handle)?;
    let realtime = realtime_device(device).and_then(|path| disk::flush_at(&path));
    realtime.unwrap_or(Ok(()))?;
    if let Some(flushed) = disk::flush(device) {
        return flushed;
    }
    if is_file(handle)? {
        return rustix::fs::fsync(handle);
    }
    let paths = [Path::new(".")].into_iter().chain(below(owned));
    let unnamed = paths.into_iter().find_map(|path| make_unnamed(handle, path));
    unnamed.map_or(Ok(()), rustix::fs::fsync)
}

/// Returns the path of the realtime device, as mount(8) got it. Returns `None` without a realtime
/// device, if this process does not see the mount, or if the path is relative: the working
/// directory of mount(8) is unknown.
fn realtime_device(device: DeviceId) -> Option<PathBuf> {
    let mounts = mounts::read("self").ok()?;
    let path = mounts.iter().find(|mount| mount.device == device)?.option("rtdev")?;
    path.is_absolute().then_some(path)
}

fn is_file(handle: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode) == FileType::RegularFile)
}

/// Makes a file without a name in the directory `path` below `directory`, on the same mount.
fn make_unnamed(directory: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(directory, path, flags, Mode::RUSR, within).ok()
}
