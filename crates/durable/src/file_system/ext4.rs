//! A journal of ext4 that a commit of its own timer has aborted. Until something begins a
//! transaction, ext4 does not know (`ext4_journal_check_start`): it is not read-only, and neither
//! syncfs(2) nor fsync(2) fails.

use super::{below, device_of};
use crate::mutant;
use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use synconce_probe::mounts::DeviceId;
use synconce_probe::{device, super_block};

/// An extended attribute that no file has.
const ATTRIBUTE: &str = "user.synconce.none";

/// Where the disk has `s_feature_incompat` of the super block.
const INCOMPATIBLE: u64 = 1024 + 0x60;

/// `EXT4_FEATURE_INCOMPAT_RECOVER`.
const RECOVER: u32 = 4;

/// Fails if the journal has stopped. The removal of an attribute that is not there begins a
/// transaction, and changes nothing. An overlay passes the removal on to its upper directory
/// (`ovl_xattr_set`). On a frozen file system the removal waits for the thaw.
///
/// The kernel lets only those remove an attribute who may write the file. So it is also tried at
/// each of `owned` below `handle`, and at the directories above it.
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
        // No such attribute; or a file of another user, a special file, no attributes.
        _ => Ok(()),
    }
}

/// Whether the file system has become read-only by a remount, which has written everything. Finds
/// nothing without the right to read the disk.
fn was_remounted(handle: BorrowedFd<'_>) -> Result<bool, Errno> {
    // syncfs(2) waits for the end of the remount; the removal of the attribute does not.
    rustix::fs::syncfs(handle)?;
    // fsync(2) fails if an error has made the file system read-only, also without a journal
    // (`ext4_sync_file`).
    super::find_stop(handle)?;
    Ok(journal(handle)? == Some(JournalState::Finished))
}

/// Removes the attribute from the file `path` below `directory`, without opening the file. Returns
/// `None` if it is not there, on the same mount.
fn remove_below(directory: BorrowedFd<'_>, path: &Path) -> Option<Result<(), Errno>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    let file = rustix::fs::openat2(directory, path, flags, Mode::empty(), within).ok()?;
    Some(rustix::fs::removexattr(format!("/proc/self/fd/{}", file.as_raw_fd()), ATTRIBUTE))
}

/// Fails if the file system was remounted read-only with a journal that had stopped: the remount
/// succeeds, and only the mark of the super block stays that the journal has to be replayed
/// (`ext4_mark_recovery_complete`). Finds nothing without the right to read the disk.
pub(super) fn find_unfinished_journal(handle: BorrowedFd<'_>) -> Result<(), Errno> {
    if journal(handle)? != Some(JournalState::Unfinished) {
        return Ok(());
    }
    // A remount that goes on is read-only before it removes the mark. syncfs(2) waits for its end.
    rustix::fs::syncfs(handle)?;
    if journal(handle)? == Some(JournalState::Unfinished) { Err(Errno::ROFS) } else { Ok(()) }
}

/// The journal of a file system, as the super block on the disk has it.
#[derive(PartialEq, Eq)]
enum JournalState {
    /// The file system is written, so that its journal is always to be replayed.
    Written,
    /// The file system is read-only, and has everything.
    Finished,
    /// The file system is read-only, and its journal is to be replayed.
    Unfinished,
}

/// Returns the state of the journal; `None` without a disk in sight, or the right to read it.
fn journal(handle: BorrowedFd<'_>) -> Result<Option<JournalState>, Errno> {
    Ok(journal_on(device_of(handle)?))
}

fn journal_on(device: DeviceId) -> Option<JournalState> {
    // A read-only mount of a file system that is written by another mount has the mark, too.
    if options(device)?.lines().next() != Some("ro") {
        return Some(JournalState::Written);
    }
    let mut features = [0; 4];
    File::open(device::node(device)?).ok()?.read_exact_at(&mut features, INCOMPATIBLE).ok()?;
    let is_finished = u32::from_le_bytes(features) & RECOVER == 0;
    Some(if is_finished { JournalState::Finished } else { JournalState::Unfinished })
}

/// Whether the file system of `handle` certainly has a journal: only then its options have the mode
/// of the data. Without a journal syncfs(2) flushes the disk before it writes the last metadata
/// (`ext4_sync_fs`, and then `sync_blockdev` in `sync_filesystem`).
pub(super) fn has_journal(handle: BorrowedFd<'_>) -> Result<bool, Errno> {
    let options = options(device_of(handle)?).unwrap_or_default();
    Ok(options.lines().any(|option| option.starts_with("data=")))
}

/// Returns the number of errors that the ext4 on `device` has counted.
pub(crate) fn count_errors(device: DeviceId) -> Option<u64> {
    super_block::errors(&Path::new("/sys/fs/ext4").join(name(device)?))
}

/// Returns the options of the file system on `device`, one a line.
fn options(device: DeviceId) -> Option<String> {
    fs::read_to_string(Path::new("/proc/fs/ext4").join(name(device)?).join("options")).ok()
}

/// Returns the kernel's name of the block device `device`.
fn name(device: DeviceId) -> Option<OsString> {
    let link = fs::read_link(format!("/sys/dev/block/{device}")).ok()?;
    link.file_name().map(ToOwned::to_owned)
}
