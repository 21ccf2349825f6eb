//! Where a mount is: the part of the file system that it shows, and the path at which the kernel
//! shows it to this process.
//!
//! The kernel writes paths relative to the root of the process that reads them (`d_path`,
//! fs/d_path.c), also paths of another mount namespace. But it writes the mount points of
//! `/proc/PID/mountinfo` relative to the root of `PID`.

use super::matches::Inherited;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use synconce_probe::mounts::{self, DeviceId, MNT_ID_UNIQUE, Mount, mount_id};

/// Whether the calling thread may wait for another process or a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Blocking {
    #[default]
    Refused,
    Allowed,
}

/// A look-up may wait for another process, and the calling thread may not: retry on a worker
/// thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MayBlock;

/// A file that a call syncs.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    /// The caller.
    pub thread: u32,
    /// The mount through which the file was reached; the number may be reused.
    pub mount: u64,
    /// The mount's unique id, from Linux 6.8 on.
    pub unique: Option<u64>,
    /// The kernel's path of the file, relative to this process's root.
    pub path: &'a Path,
    /// The name of a file that does not exist yet; `path` is its directory.
    pub new_name: Option<&'a OsStr>,
    /// What is at `path`.
    pub file_type: FileType,
    /// The number of names of what is at `path`.
    pub links: u32,
}

/// Where a mount is.
#[derive(Debug)]
pub(super) struct Located {
    /// The mount point, as paths of the kernel begin.
    pub base: PathBuf,
    /// The directory or file of the file system that is mounted there.
    pub root: PathBuf,
    pub device: DeviceId,
    /// What the rules demand of the paths below.
    pub inherited: Inherited,
    /// Whether this is the root of this process, and [`MountFinder::changes`] shows when it
    /// changes.
    is_watched_root: bool,
}

/// Mount points of a mount and of the mounts above it, each as a place.
type Points = [(DeviceId, PathBuf)];

/// A mount, its mount point as the kernel shows it to this process, and the points above.
type FoundMount = (Mount, PathBuf, Vec<(DeviceId, PathBuf)>);

/// Finds mounts, and caches those with a unique id.
#[derive(Debug, Default)]
pub(super) struct MountFinder {
    known: Mutex<HashMap<u64, Arc<Located>>>,
    /// The mounts of this process, which poll(2) watches.
    changes: Option<File>,
}

impl MountFinder {
    /// Returns places whose [`MountFinder::changes`] are watched.
    pub(super) fn watched() -> Self {
        Self { changes: File::open("/proc/self/mountinfo").ok(), ..Self::default() }
    }

    /// Returns the descriptor that is ready for `POLLPRI` once the mounts of this process have
    /// changed (proc_pid_mountinfo(5)).
    pub(super) fn changes(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().map(AsFd::as_fd)
    }

    /// Forgets all mounts.
    pub(super) fn forget(&self) {
        self.known().clear();
    }

    /// Returns where the mount of `file` is, if it can be found. `inherited` returns what the
    /// rules demand of a mount whose mount point is at some places.
    ///
    /// # Errors
    /// Finding it may block, and `blocking` is refused.
    pub(super) fn find_mount(
        &self,
        file: &Candidate<'_>,
        blocking: Blocking,
        inherited: impl Fn(&Points) -> Inherited,
    ) -> Result<Option<Arc<Located>>, MayBlock> {
        let known = file.unique.and_then(|id| self.known().get(&id).cloned());
        if let Some(known) = known.filter(|known| is_current(known, file)) {
            return Ok(Some(known));
        }
        let found = match listed(file) {
            None if blocking == Blocking::Refused => return Err(MayBlock),
            None => climbed(file),
            found => found,
        };
        let located = found.map(|(mount, base, points)| {
            let inherited = inherited(&points);
            let root = before_removal(mount.root);
            let is_watched_root =
                self.changes.is_some() && base == Path::new("/") && is_mount(file, "/");
            Arc::new(Located { base, root, device: mount.device, inherited, is_watched_root })
        });
        if let (Some(id), Some(located)) = (file.unique, &located) {
            self.known().insert(id, Arc::clone(located));
        }
        Ok(located)
    }

    /// Returns the file system of `file` and its path there.
    pub(super) fn place(&self, file: &Candidate<'_>) -> Option<(DeviceId, PathBuf)> {
        let located = self.find_mount(file, Blocking::Allowed, |_| Inherited::default()).ok()??;
        let below = file.path.strip_prefix(&located.base).ok()?;
        Some((located.device, located.root.join(below)))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Arc<Located>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the path that the root of a mount had before it was removed: the kernel marks it
/// (`seq_dentry`, fs/seq_file.c). Unlinked files below it may be in use.
fn before_removal(root: PathBuf) -> PathBuf {
    let plain = root.as_os_str().as_bytes().strip_suffix(b"//deleted");
    plain.map(|plain| PathBuf::from(OsStr::from_bytes(plain))).unwrap_or(root)
}

/// Whether the mount is still where it was: pivot_root(2) and `mount --move` move mounts. A path
/// of a moved mount begins with another mount point. Every path begins with `/`, so a mount
/// that was at the root is compared with the root.
fn is_current(located: &Located, file: &Candidate<'_>) -> bool {
    let is_root_of = |process: &str| {
        is_mount(file, &format!("/proc/{process}/root"))
            && root_of(process).as_deref() == Some(Path::new("/"))
    };
    if located.base == Path::new("/") {
        located.is_watched_root || is_mount(file, "/") || is_root_of(&file.thread.to_string())
    } else {
        file.path.starts_with(&located.base)
    }
}

/// Whether `path` is in the mount of `file`.
fn is_mount(file: &Candidate<'_>, path: &str) -> bool {
    let stat = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, MNT_ID_UNIQUE);
    stat.is_ok_and(|stat| Some(stat.stx_mnt_id) == file.unique)
}

/// Returns the root directory of `process`, as the kernel shows it to this process.
fn root_of(process: &str) -> Option<PathBuf> {
    readlink(&format!("/proc/{process}/root"))
}

fn readlink(path: &str) -> Option<PathBuf> {
    let target = rustix::fs::readlink(path, Vec::new()).ok()?;
    Some(OsString::from_vec(target.into_bytes()).into())
}

/// Finds the mount of `file` in the caller's list of mounts or in this process's.
fn listed(file: &Candidate<'_>) -> Option<FoundMount> {
    [file.thread.to_string().as_str(), "self"].into_iter().find_map(|process| {
        let mounts = mounts::read(process).unwrap_or_default();
        let mount = mounts.iter().find(|mount| mount.id == file.mount)?;
        let base = root_of(process)?.join(mount.point.strip_prefix("/").ok()?);
        let is_below = file.path.starts_with(&base);
        is_below.then(|| (mount.clone(), clean(&base), points_above(mount, &mounts)))
    })
}

/// Returns `path` without a slash at its end.
fn clean(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Finds the mount of `file` when no list has it: the caller is in a mount namespace of its own
/// and in a chroot there. The caller's root or working directory leads up to the root of the
/// mount. It is compared with the roots of this process's mounts, which the namespace was copied
/// from.
fn climbed(file: &Candidate<'_>) -> Option<FoundMount> {
    let starts = ["root", "cwd"].map(|name| format!("/proc/{}/{name}", file.thread));
    let is_in_mount = |directory: &OwnedFd| mount_id(directory) == Some(file.mount);
    let start = starts.iter().find_map(|path| open(path).ok().filter(is_in_mount))?;
    let top = climb(start).ok()?;
    let base = readlink(&format!("/proc/self/fd/{}", top.as_raw_fd()))?;
    let mounts = mounts::read("self").ok()?;
    let is_same = |mount: &&Mount| {
        let root = open(&mount.point).ok().filter(|root| mount_id(root) == Some(mount.id));
        root.is_some_and(|root| identity(&root).is_ok_and(|it| identity(&top) == Ok(it)))
    };
    // Only disks are opened: a file server may hang.
    let mount = mounts.iter().filter(|mount| mount.kind().is_held()).find(is_same)?;
    Some((mount.clone(), base, points_above(mount, &mounts)))
}

/// Returns the topmost directory of the mount that `directory` is in, or this process's root.
fn climb(mut directory: OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    loop {
        match rustix::fs::openat2(&directory, "..", flags, Mode::empty(), ResolveFlags::NO_XDEV) {
            Err(Errno::XDEV) => return Ok(directory),
            Ok(above) if identity(&above)? == identity(&directory)? => return Ok(directory),
            above => directory = above?,
        }
    }
}

fn open(path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

fn identity(file: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Returns the place of the mount point of `mount` on the file system of its parent mount, then the
/// place of the parent's mount point, and so on up to the root, as far as `mounts` has the mounts.
pub(super) fn points_above(mount: &Mount, mounts: &[Mount]) -> Vec<(DeviceId, PathBuf)> {
    let (mut places, mut at) = (Vec::new(), mount);
    while let Some(parent) = mounts.iter().find(|other| other.id == at.parent && other.id != at.id)
        && places.len() < mounts.len()
    {
        let Ok(below) = mount.point.strip_prefix(&parent.point) else { break };
        places.push((parent.device, parent.root.join(below)));
        at = parent;
    }
    places
}
