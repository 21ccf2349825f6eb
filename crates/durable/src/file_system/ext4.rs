//! Finds a journal of ext4 that was aborted in a commit which the journal's own timer began. ext4
//! does not notice the abort before the next transaction begins (`ext4_journal_check_start`): until
//! then the file system is not read-only, and neither syncfs(2) nor fsync(2) fails.

use super::{below, device_of};
use crate::mutant;
use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use synconce_probe::mounts::DeviceId;
use synconce_probe::{device, super_block};

/// An extended attribute that no file has.
const ATTRIBUTE: &str = "user.synconce.none";

/// The offset of the super block's `s_feature_incompat` on the disk, in bytes.
const INCOMPATIBLE: u64 = 1024 + 0x60;

/// `EXT4_FEATURE_INCOMPAT_RECOVER`.
const RECOVER: u32 = 4;

/// Fails if the journal has stopped. The removal of an attribute that is not there begins a
/// transaction, and changes nothing. An overlay passes the removal on to its upper directory
/// (`ovl_xattr_set`). On a frozen file system the removal waits for the thaw.
///
/// Only a caller that may write a file can remove its attributes. If the removal is refused at
/// `handle`, it is tried at each path of `owned`, which is below `handle`, and at the directories
/// above that path.
///
/// # Errors
/// The journal has stopped, by an error or a shutdown of the file system.
pub fn find_aborted_journal(handle: BorrowedFd<'_>, owned: &[PathBuf]) -> Result<(), Errno> {
    let is_read_only = rustix::fs::fstatvfs(handle)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    if mutant::is("aborted-journal-unseen") {
        return Ok(());
    }
    // The kernel would refuse the removal.
    if is_read_only {
        return super::find_stop(handle);
    }
    let mut removed = rustix::fs::fremovexattr(handle, ATTRIBUTE);
    for path in below(owned) {
        if !matches!(removed, Err(Errno::PERM | Errno::ACCESS)) {
            break;
        }
        removed = remove_below(handle, path).unwrap_or(removed);
    }
    match removed {
        Err(Errno::ROFS) if was_remounted(handle)? => Ok(()),
        Err(error @ (Errno::ROFS | Errno::IO)) => Err(error),
        // The file has no such attribute; or it belongs to another user, is special, or is on a
        // file system without attributes.
        _ => Ok(()),
    }
}

/// Whether a remount has made the file system read-only, and has written all data. Returns `false`
/// without the right to read the disk.
fn was_remounted(handle: BorrowedFd<'_>) -> Result<bool, Errno> {
    // syncfs(2) waits for the end of the remount; the removal of the attribute does not.
    rustix::fs::syncfs(handle)?;
    // fsync(2) fails if an error has made the file system read-only, also without a journal
    // (`ext4_sync_file`).
    super::find_stop(handle)?;
    Ok(journal(handle)? == Some(JournalState::Finished))
}

/// Removes the attribute from the file `path` below `directory`, without opening the file. Returns
/// `None` if `path` leads to no file on the mount of `directory`.
fn remove_below(directory: BorrowedFd<'_>, path: &Path) -> Option<Result<(), Errno>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    let file = rustix::fs::openat2(directory, path, flags, Mode::empty(), within).ok()?;
    Some(rustix::fs::removexattr(format!("/proc/self/fd/{}", file.as_raw_fd()), ATTRIBUTE))
}

/// Fails if the journal had stopped before a remount made the file system read-only. The remount
/// succeeds; only the flag `RECOVER` stays in the super block: the journal has to be replayed
/// (`ext4_mark_recovery_complete`). Succeeds without the right to read the disk.
pub(super) fn find_unfinished_journal(handle: BorrowedFd<'_>) -> Result<(), Errno> {
    if journal(handle)? != Some(JournalState::Unfinished) {
        return Ok(());
    }
    // A remount makes the file system read-only before it removes the flag. syncfs(2) waits for the
    // end of the remount.
    rustix::fs::syncfs(handle)?;
    if journal(handle)? == Some(JournalState::Unfinished) { Err(Errno::ROFS) } else { Ok(()) }
}

/// The state of a file system's journal, by the mount options and the super block on the disk.
#[derive(PartialEq, Eq)]
enum JournalState {
    /// The file system is mounted writable. Then `RECOVER` is always set.
    Written,
    /// The file system is read-only, and its journal is empty.
    Finished,
    /// The file system is read-only, and its journal has to be replayed.
    Unfinished,
}

/// Returns the state of the journal. Returns `None` if no device file of the disk is found, or if
/// it or the mount options in /proc cannot be read.
fn journal(handle: BorrowedFd<'_>) -> Result<Option<JournalState>, Errno> {
    Ok(journal_on(device_of(handle)?))
}

fn journal_on(device: DeviceId) -> Option<JournalState> {
    // The file system may be writable by another mount, although this mount is read-only.
    if options(device)?.lines().next() != Some("ro") {
        return Some(JournalState::Written);
    }
    let mut features = [0; 4];
    File::open(device::node(device)?).ok()?.read_exact_at(&mut features, INCOMPATIBLE).ok()?;
    let is_finished = u32::from_le_bytes(features) & RECOVER == 0;
    Some(if is_finished { JournalState::Finished } else { JournalState::Unfinished })
}

/// Whether the file system of `handle` certainly has its journal on its own disk, in the inode
/// `EXT4_JOURNAL_INO` (`jbd2_journal_init_inode`).
///
/// Without a journal syncfs(2) flushes the disk before it writes the last metadata (`ext4_sync_fs`,
/// and then `sync_blockdev` in `sync_filesystem`). With a journal on another disk, syncfs(2) and
/// fsync(2) may not flush the disk of the data: Linux 6.1 leaves the flush to a commit of the
/// journal, which may flush only the disk of the journal (`jbd2_trans_will_send_data_barrier`).
/// Linux 6.18 flushes both.
pub(super) fn has_internal_journal(handle: BorrowedFd<'_>) -> Result<bool, Errno> {
    let Some(mut journal) = device::name(device_of(handle)?) else {
        return Ok(false);
    };
    journal.push("-8");
    Ok(Path::new("/proc/fs/jbd2").join(journal).exists())
}

/// The number of errors that an ext4 has counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorCount {
    /// The number of the super block's directory in sysfs ([`super_block`]). Another file system
    /// can be mounted later on the same device.
    super_block: u64,
    errors: u64,
}

impl ErrorCount {
    /// Returns the count of the ext4 on `device`. Returns `None` if sysfs shows no ext4 there.
    pub(crate) fn read(device: DeviceId) -> Option<Self> {
        let directory = Path::new("/sys/fs/ext4").join(device::name(device)?);
        let super_block = directory.metadata().ok()?.ino();
        Some(Self { super_block, errors: super_block::errors(&directory)? })
    }

    /// Whether both counts are of one super block.
    pub(crate) fn is_of_super_block_of(&self, other: &Self) -> bool {
        self.super_block == other.super_block
    }

    /// Whether the super block has counted an error between `earlier` and this count.
    pub(crate) fn has_grown_since(&self, earlier: &Self) -> bool {
        // e2fsck(8) sets the number to 0.
        self.is_of_super_block_of(earlier) && self.errors > earlier.errors
    }
}

/// Returns the options of the file system on `device`, one a line.
fn options(device: DeviceId) -> Option<String> {
    fs::read_to_string(Path::new("/proc/fs/ext4").join(device::name(device)?).join("options")).ok()
}
