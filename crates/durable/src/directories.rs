//! The names by which a marker is found: a marker is as durable as the name of
//! each directory above it.
//!
//! Those that this run made are known. Another run, started at the same time,
//! may have made them a moment before, and not have synced them yet; or will
//! never, if its command does not sync. Such names are told by their age.

use crate::error::{Context, Error};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A name that is older has been written back by the kernel: within seconds by
/// default, 5 minutes where that is put off as long as file systems advise
/// (`commit=` in ext4(5) and btrfs(5)), 10 in the laptop modes of distributions.
/// A shorter age than is needed loses a marker; a longer one costs a few flushes
/// in runs soon after the first. A clock that jumps ahead of all this between two
/// runs makes a young name old.
const HORIZON: Duration = Duration::from_secs(15 * 60);

/// Whether what was last changed at `changed` has been written back by the kernel.
pub(crate) fn is_old(changed: SystemTime) -> bool {
    is_old_at(changed, SystemTime::now())
}

fn is_old_at(changed: SystemTime, now: SystemTime) -> bool {
    now.duration_since(changed).is_ok_and(|age| age >= HORIZON)
}

/// The directories above a marker that this run made.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    /// Outermost first.
    made: Vec<PathBuf>,
}

impl Directories {
    /// Makes `directory` and its parents, and notes those that did not exist.
    ///
    /// Those that root makes are open to all whatever the umask is: other users look
    /// there for what root's runs have left, and the directories of another system's
    /// root stay with it when the command puts files into them. A file system that keeps
    /// no modes may refuse that, and its directories are as good without.
    ///
    /// A user who owns a directory above may put a link in the place of what was just made,
    /// so no link is followed below the directories that were there.
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
                // Another run has just made it.
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

    /// Makes the names durable that lead to `directory`, open as `handle`, on its
    /// file system: those made here, and those that are young.
    ///
    /// A directory that we may not open, or that cannot be synced alone, is synced
    /// with its whole file system.
    ///
    /// # Errors
    /// Names the act and path.
    pub(crate) fn sync_names(&self, handle: BorrowedFd<'_>, directory: &Path) -> Result<(), Error> {
        let Ok(levels) = climb(handle) else {
            return rustix::fs::syncfs(handle).on("cannot sync the file system of", directory);
        };
        for up in holders(&levels, self.made.len(), SystemTime::now()) {
            let holder = directory.ancestors().nth(up).unwrap_or(directory);
            if !is_synced_alone(handle, up).on("cannot sync", holder)? {
                return rustix::fs::syncfs(handle).on("cannot sync the file system of", directory);
            }
        }
        Ok(())
    }

    /// Removes what was made here.
    pub(crate) fn remove(&self) {
        for made in self.made.iter().rev() {
            // Somebody else may have put a file there meanwhile: then it stays.
            let _ = std::fs::remove_dir(made);
        }
    }
}

/// Sets the mode of a directory, if its file system keeps modes.
pub(crate) fn set_mode(directory: impl AsFd, mode: Mode) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let _ = rustix::fs::openat(directory, ".", flags, Mode::empty())
        .and_then(|directory| rustix::fs::fchmod(directory, mode));
}

/// One directory on the way up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    /// Device and inode.
    identity: (u32, u32, u64),
    /// The time of its last change, if its file system keeps one.
    changed: Option<SystemTime>,
    is_mount_point: Option<bool>,
}

impl Level {
    fn of(stat: &Statx) -> Self {
        let attribute = StatxAttributes::MOUNT_ROOT;
        let knows = stat.stx_attributes_mask.contains(attribute);
        // FAT's root and some FUSE servers have no times: then it is 0.
        let seconds = u64::try_from(stat.stx_ctime.tv_sec).ok().filter(|&seconds| seconds > 0);
        Self {
            identity: (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino),
            changed: seconds.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
            is_mount_point: knows.then(|| stat.stx_attributes.contains(attribute)),
        }
    }

    /// Whether it was changed so recently that the change may not be durable. A
    /// time that is unknown, or to come, says nothing.
    fn is_recent(&self, now: SystemTime) -> bool {
        !self.changed.is_some_and(|changed| is_old_at(changed, now))
    }

    /// Whether `above` is on another file system, or the same: the way ends here.
    /// Linux before 5.8 does not know mount points; there the device tells.
    fn is_last_before(&self, above: &Self) -> bool {
        let (device, other) = (&self.identity, &above.identity);
        self.identity == above.identity
            || self.is_mount_point.is_none() && (device.0, device.1) != (other.0, other.1)
    }
}

/// `directory` and those above it up to the root of its mount, innermost first.
/// By `..`, because names may be links, and need not be readable.
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
    Ok(Level::of(&stat))
}

/// How far above `levels[0]` are the directories that hold a name which is not
/// known to be durable: the innermost `made`, and the young.
///
/// To make or rename a directory changes both it and the one that holds it
/// (`mkdir(2)`; rename in ext4, XFS, btrfs, F2FS, tmpfs), so a name is as old as
/// the older of the two changes. Either alone would call more young than is: the
/// directory of markers changes with every run, `/var/lib` with every package.
fn holders(levels: &[Level], made: usize, now: SystemTime) -> Vec<usize> {
    let is_young = |up: usize| levels[up - 1].is_recent(now) && levels[up].is_recent(now);
    (1..levels.len()).filter(|&up| up <= made || is_young(up)).collect()
}

/// Syncs the directory `up` levels above; `false` if it is not for us to open, or
/// has no sync of its own. A sync that failed is an error: another would succeed.
fn is_synced_alone(directory: BorrowedFd<'_>, up: usize) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let holder = match rustix::fs::openat(directory, dots(up), flags, Mode::empty()) {
        Err(Errno::ACCESS | Errno::PERM) => return Ok(false),
        other => other?,
    };
    match rustix::fs::fsync(holder.as_fd()) {
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
