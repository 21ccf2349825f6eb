//! Makes the directories above a marker, and syncs their names: a marker is as durable as the
//! name of each directory above it.
//!
//! A run records the directories that it made, and syncs their names. Another run may have just
//! made one of the directories, and not have synced the name yet. If the command of that run never
//! syncs, the name is not synced. So a run also syncs young names.

use crate::error::{Context, Error};
use crate::file_system;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The age at which the kernel has certainly written a name back. By default that takes seconds;
/// with the longest delay that file systems advise, up to 5 minutes (`commit=` in ext4(5) and
/// btrfs(5)); and in the laptop modes of distributions 10 minutes. Too short a horizon loses a
/// marker; too long a horizon costs a few flushes in runs soon after the first. If the clock jumps
/// ahead by more than the horizon between two runs, a young name seems old.
const HORIZON: Duration = Duration::from_secs(15 * 60);

/// Whether a file that was last changed at `changed` has been written back by the kernel.
pub(crate) fn is_old(changed: SystemTime) -> bool {
    is_old_at(changed, SystemTime::now())
}

fn is_old_at(changed: SystemTime, now: SystemTime) -> bool {
    now.duration_since(changed).is_ok_and(|age| age >= HORIZON)
}

/// The directories that were missing when this run called [`Directories::make`].
#[derive(Debug, Default)]
pub(crate) struct Directories {
    /// The directories, outermost first. Another run may have made one at the same time.
    made: Vec<PathBuf>,
}

impl Directories {
    /// Makes `directory` and its parents, and records those that did not exist.
    ///
    /// A directory that root makes is readable by all, whatever the umask is. `status` of other
    /// users looks there for interrupted runs of root. In another system's root, the directory
    /// stays if the command puts files into it. A file system without modes may refuse the change
    /// of mode; the error is ignored.
    ///
    /// Follows no link below the directories that existed: a user that owns one of them may replace
    /// a new directory by a link.
    pub(crate) fn make(&mut self, directory: &Path) -> Result<(), Error> {
        let is_root = rustix::process::geteuid().is_root();
        let missing: Vec<_> =
            directory.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
        let Some(first) = missing.last() else { return Ok(()) };
        let above = first.parent().filter(|above| !above.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let at = rustix::fs::open(above.unwrap_or(Path::new(".")), flags, Mode::empty());
        let mut at = at.on("cannot create", first)?;
        for path in missing.into_iter().rev() {
            let name = path.file_name().unwrap_or(OsStr::new(".."));
            let made = rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o777));
            let opened = rustix::fs::openat(&at, name, flags | OFlags::NOFOLLOW, Mode::empty());
            at = match (made, opened) {
                (Ok(()), opened) => opened.on("cannot open", path)?,
                // Another run has just made the directory.
                (Err(Errno::EXIST), Ok(there)) => there,
                (Err(error), _) => return Err(error).on("cannot create", path),
            };
            if is_root && made.is_ok() {
                set_mode(&at, Mode::from_raw_mode(0o755));
            }
            self.made.push(path.to_owned());
        }
        self.made.sort();
        self.made.dedup();
        Ok(())
    }

    /// Makes durable the names that lead to `directory`, open as `handle`, within its mount: the
    /// names of directories that were made here, and young names.
    ///
    /// Syncs the whole file system instead if one of the directories cannot be opened, or cannot be
    /// synced alone.
    pub(crate) fn sync_names(&self, handle: BorrowedFd<'_>, directory: &Path) -> Result<(), Error> {
        let Ok(levels) = climb(handle) else {
            return file_system::sync(handle).on("cannot sync the file system of", directory);
        };
        for up in holders(&levels, self.made.len(), SystemTime::now()) {
            let holder = directory.ancestors().nth(up).unwrap_or(directory);
            if !is_synced_alone(handle, up).on("cannot sync", holder)? {
                return file_system::sync(handle).on("cannot sync the file system of", directory);
            }
        }
        Ok(())
    }

    /// Removes the directories that were made here and are empty.
    pub(crate) fn remove(&self) {
        for made in self.made.iter().rev() {
            let _ = std::fs::remove_dir(made);
        }
    }
}

/// Sets the mode of a directory. Ignores errors: not every file system keeps modes.
pub(crate) fn set_mode(directory: impl AsFd, mode: Mode) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let _ = rustix::fs::openat(directory, ".", flags, Mode::empty())
        .and_then(|directory| rustix::fs::fchmod(directory, mode));
}

/// A directory on the path to the root of the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    /// Device and inode.
    identity: (u32, u32, u64),
    /// The time of the last change (ctime), if the file system records it.
    changed: Option<SystemTime>,
    /// Whether this is the root of a mount; `None` before Linux 5.8.
    is_mount_point: Option<bool>,
}

impl Level {
    fn from_stat(stat: &Statx) -> Self {
        let attribute = StatxAttributes::MOUNT_ROOT;
        let knows = stat.stx_attributes_mask.contains(attribute);
        // FAT's root and some FUSE servers have no times, and return 0.
        let seconds = u64::try_from(stat.stx_ctime.tv_sec).ok().filter(|&seconds| seconds > 0);
        Self {
            identity: (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino),
            changed: seconds.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
            is_mount_point: knows.then(|| stat.stx_attributes.contains(attribute)),
        }
    }

    /// Whether the directory was changed so recently that the change may not be durable. An
    /// unknown time, or a time in the future, counts as recent.
    fn is_recent(&self, now: SystemTime) -> bool {
        !self.changed.is_some_and(|changed| is_old_at(changed, now))
    }

    /// Whether this is the last level, because `above`, its `..`, is the same directory or on
    /// another file system. The device numbers are compared only before Linux 5.8, which does not
    /// report mount points.
    fn is_last_before(&self, above: &Self) -> bool {
        let (device, other) = (&self.identity, &above.identity);
        self.identity == above.identity
            || self.is_mount_point.is_none() && (device.0, device.1) != (other.0, other.1)
    }
}

/// Returns `directory` and the directories above it up to the root of its mount, innermost
/// first. Uses `..` and not the path, which may contain links.
fn climb(directory: BorrowedFd<'_>) -> Result<Vec<Level>, Errno> {
    let mut levels = vec![look(directory, 0)?];
    while let Some(&last) = levels.last()
        && last.is_mount_point != Some(true)
    {
        let above = look(directory, levels.len())?;
        if last.is_last_before(&above) {
            break;
        }
        levels.push(above);
    }
    Ok(levels)
}

fn look(directory: BorrowedFd<'_>, up: usize) -> Result<Level, Errno> {
    let wanted = StatxFlags::CTIME | StatxFlags::INO;
    let stat = rustix::fs::statx(directory, dots(up), AtFlags::EMPTY_PATH, wanted)?;
    Ok(Level::from_stat(&stat))
}

/// Returns the indexes of the levels that contain the name of the level below, if that name may not
/// be durable: the first `made` levels above `levels[0]`, and those with young names.
///
/// To make or rename a directory changes both that directory and the directory that contains
/// it (mkdir(2); rename in ext4, XFS, btrfs, F2FS, tmpfs). So a name is at least as old as the
/// older of the two changes. Either time alone would make too many names young: the directory of
/// markers changes with every run, `/var/lib` with every package.
fn holders(levels: &[Level], made: usize, now: SystemTime) -> Vec<usize> {
    let is_young = |up: usize| levels[up - 1].is_recent(now) && levels[up].is_recent(now);
    (1..levels.len()).filter(|&up| up <= made || is_young(up)).collect()
}

/// Syncs the directory `up` levels above. Returns `false` if the directory may not be opened, or if
/// its file system has no sync of directories. A failed sync is an error: a second sync could
/// succeed although the name is lost.
fn is_synced_alone(directory: BorrowedFd<'_>, up: usize) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let holder = match rustix::fs::openat(directory, dots(up), flags, Mode::empty()) {
        Err(Errno::ACCESS | Errno::PERM) => return Ok(false),
        other => other?,
    };
    match file_system::sync_directory(holder.as_fd()) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error),
    }
}

fn dots(up: usize) -> String {
    vec![".."; up].join("/")
}

#[cfg(test)]
mod tests;
