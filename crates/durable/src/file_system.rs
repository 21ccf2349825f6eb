//! Syncs a file system, and fails if the file system has stopped writing.

mod disk;
mod ext4;
mod xfs;

pub(crate) use self::ext4::ErrorCount;
pub use self::ext4::find_aborted_journal;

use crate::failures;
use rustix::fs::{FileType, StatVfsMountFlags};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use synconce_probe::mounts::DeviceId;
use synconce_sys::btrfs;
use synconce_sys::overlay::kernel_is_at_least;

/// `BCACHEFS_STATFS_MAGIC`.
const BCACHEFS: u64 = 0xCA45_1A4E;

/// `EXT4_SUPER_MAGIC`.
const EXT4: u64 = 0xEF53;

/// `F2FS_SUPER_MAGIC`.
const F2FS: u64 = 0xF2F5_2010;

/// `XFS_SUPER_MAGIC`.
const XFS: u64 = 0x5846_5342;

/// Syncs the file system of the file or directory `handle`.
///
/// syncfs(2) alone returns success on a file system that an error made read-only. Before Linux
/// 5.17 it also does so on one that was shut down (`sync_filesystem`). On XFS, and on an ext4
/// without a journal on its own disk, it can leave data in the write cache of the disk. Counts a
/// failed sync in [`failures`], for later commits.
///
/// # Errors
/// The kernel reported a write-back error, or has stopped writing the file system.
pub fn sync(handle: BorrowedFd<'_>) -> Result<(), Errno> {
    sync_by(handle, &[]).inspect_err(|_| failures::note_at(handle))
}

/// Syncs the file system of `handle` as [`sync`] does, but leaves the count of failures to the
/// caller. `owned` are paths below the directory `handle` that the user of this process may own:
/// see [`find_aborted_journal`].
///
/// # Errors
/// As for [`sync`].
pub(crate) fn sync_by(handle: BorrowedFd<'_>, owned: &[PathBuf]) -> Result<(), Errno> {
    rustix::fs::syncfs(handle)?;
    let magic = magic(handle)?;
    let is_silent = match magic {
        // syncfs(2) succeeds once a checkpoint has failed (`f2fs_sync_fs`, 6.18); fsync(2) fails.
        F2FS => true,
        EXT4 => !ext4::has_internal_journal(handle)?,
        _ => false,
    };
    let is_read_only = rustix::fs::fstatvfs(handle)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    if is_silent || is_read_only || !kernel_is_at_least(5, 17) {
        find_stop(handle)?;
    }
    match magic {
        EXT4 => {
            if is_silent {
                // fsync(2) above flushes only if it finds no change of the directory to commit.
                disk::flush(device_of(handle)?).unwrap_or(Ok(()))?;
            }
            find_aborted_journal(handle, owned)
        }
        XFS => xfs::flush(handle, owned),
        _ => Ok(()),
    }
}

/// Returns the number of the device of `handle`.
fn device_of(handle: BorrowedFd<'_>) -> Result<DeviceId, Errno> {
    let device = rustix::fs::fstat(handle)?.st_dev;
    Ok(DeviceId { major: rustix::fs::major(device), minor: rustix::fs::minor(device) })
}

/// Returns the relative `paths`, each with the directories above it.
fn below(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    // The last of the ancestors of a relative path is empty.
    paths.iter().flat_map(|path| path.ancestors()).filter(|path| *path != Path::new(""))
}

/// Returns the type of the file system in `statfs`, whose width differs between C libraries.
fn magic(handle: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(rustix::fs::fstatfs(handle)?.f_type as u64 & 0xFFFF_FFFF)
}

/// Syncs the directory `handle`, which makes the names in it durable.
///
/// fsync(2) alone returns success on ext4 if a commit of the journal's own timer has failed since
/// the change (`jbd2_complete_transaction`).
///
/// # Errors
/// Those of fsync(2); `EROFS` or `EIO` if the journal of ext4 has stopped.
pub fn sync_directory(handle: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::fsync(handle)?;
    if magic(handle)? == EXT4 { find_aborted_journal(handle, &[]) } else { Ok(()) }
}

/// Fails if the file system of `handle` has stopped writing. Call syncfs(2) before. Always succeeds
/// for a special file, whose calls go to its driver: a FIFO or a device can be a mount point.
pub(crate) fn find_stop(handle: BorrowedFd<'_>) -> Result<(), Errno> {
    let mode = rustix::fs::fstat(handle)?.st_mode;
    if !matches!(FileType::from_raw_mode(mode), FileType::Directory | FileType::RegularFile) {
        return Ok(());
    }
    if magic(handle)? == BCACHEFS {
        // The caller's syncfs(2) has returned the error of the journal (`bch2_sync_fs`). fsync(2)
        // would fail on any read-only file system (EROFS, `bch2_flush_inode`).
        return Ok(());
    }
    if magic(handle)? == EXT4 {
        ext4::find_unfinished_journal(handle)?;
    }
    // On btrfs, fsync(2) of a directory that did not change does nothing, and so succeeds.
    if btrfs::is_btrfs(handle).unwrap_or(false) {
        btrfs::sync(handle).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    }
    match rustix::fs::fsync(handle) {
        // The file system has no sync of directories.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        result => result,
    }
}
