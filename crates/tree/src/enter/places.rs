//! Mount points in a tree: resolved from the tree's root, made where they are missing, and
//! removed afterwards.

use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, UTIME_OMIT, fstat, mkdirat,
    openat, openat2, readlinkat, statat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::umask;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use synconce_durable::error::{Context, Error};

/// The kernel's limit on followed links (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// What a mount point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountPointKind {
    Directory,
    File,
}

impl MountPointKind {
    /// Returns the kind of the file at `path`.
    pub(super) fn from_path(path: &Path) -> Result<Self, Error> {
        let data = fs::metadata(path).on("cannot find what to bind,", path)?;
        Ok(if data.is_dir() { Self::Directory } else { Self::File })
    }
}

/// Opens `path` as `O_PATH`, resolved as in a process whose root is `root`.
pub(super) fn find(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    resolve(root, path, OFlags::empty())
}

fn resolve(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
    loop {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            // A rename or mount happened anywhere while ".." was looked up (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) => {}
            found => return found,
        }
    }
}

/// The mount points in one root. Mount points that were made are removed when this value is
/// dropped.
pub(super) struct MountPoints {
    root: OwnedFd,
    made: Vec<Made>,
    keep: bool,
}

struct Made {
    parent: OwnedFd,
    name: OsString,
    kind: MountPointKind,
    number: u64,
    /// The parent's modification time before and after the mount point was made in it.
    before: Timespec,
    after: Timespec,
}

impl MountPoints {
    pub(super) fn open(root: &Path) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(root, flags, Mode::empty());
        Ok(Self { root: opened.on("cannot enter", root)?, made: Vec::new(), keep: false })
    }

    /// Makes mount points that are not removed on drop.
    pub(super) fn kept(root: OwnedFd) -> Self {
        Self { root, made: Vec::new(), keep: true }
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens the mount point at `path` in the root. A missing mount point is made, where a
    /// symbolic link leads, with its parent directories.
    pub(super) fn make(&mut self, path: &Path, kind: MountPointKind) -> Result<OwnedFd, Error> {
        self.make_following(path.to_owned(), kind, MOST_LINKS)
            .on("cannot find or make, in the tree,", path)
    }

    fn make_following(
        &mut self,
        path: PathBuf,
        kind: MountPointKind,
        links: usize,
    ) -> io::Result<OwnedFd> {
        match find(self.root(), &path) {
            Err(Errno::NOENT) => {}
            found => return Ok(found?),
        }
        let Some(Component::Normal(name)) = path.components().next_back() else {
            // `..` in a missing directory.
            return Err(Errno::NOENT.into());
        };
        let above = path.parent().unwrap_or(Path::new("/"));
        let parent = self.make_following(above.to_owned(), MountPointKind::Directory, links)?;
        match readlinkat(&parent, name, Vec::new()) {
            Ok(_) if links == 0 => Err(Errno::LOOP.into()),
            // Absolute, or relative to the link's directory; `..` cannot leave the root.
            Ok(target) => {
                let target = above.join(OsStr::from_bytes(target.as_bytes()));
                self.make_following(target, kind, links - 1)
            }
            Err(_) => self.make_in(parent, name.to_owned(), kind),
        }
    }

    fn make_in(
        &mut self,
        parent: OwnedFd,
        name: OsString,
        kind: MountPointKind,
    ) -> io::Result<OwnedFd> {
        let before = changed(&fstat(&parent)?);
        let mode = Mode::from_raw_mode(match kind {
            MountPointKind::Directory => 0o755,
            MountPointKind::File => 0o644,
        });
        // The umask is the caller's, and this process has no other thread.
        let before_umask = umask(Mode::empty());
        let made = match kind {
            MountPointKind::Directory => mkdirat(&parent, &name, mode),
            MountPointKind::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                openat(&parent, &name, flags, mode).map(drop)
            }
        };
        umask(before_umask);
        made?;
        let place = openat(
            &parent,
            &name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let after = changed(&fstat(&parent)?);
        let number = fstat(&place)?.st_ino;
        self.made.push(Made { parent, name, kind, number, before, after });
        Ok(place)
    }
}

impl Drop for MountPoints {
    fn drop(&mut self) {
        while let Some(made) = self.made.pop().filter(|_| !self.keep) {
            made.remove();
        }
    }
}

impl Made {
    /// Removes the mount point, unless the command replaced it or put something in it.
    fn remove(self) {
        let Ok(now) = statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        let written = self.kind == MountPointKind::File && now.st_size != 0;
        if now.st_ino != self.number || written {
            return;
        }
        let Ok(parent) = fstat(&self.parent) else { return };
        // A modification time that the command set stays.
        let untouched = changed(&parent) == self.after;
        let last_modification = if untouched { self.before } else { changed(&parent) };
        let flags = match self.kind {
            MountPointKind::Directory => AtFlags::REMOVEDIR,
            MountPointKind::File => AtFlags::empty(),
        };
        if unlinkat(&self.parent, &self.name, flags).is_ok() {
            let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let times = Timestamps { last_access, last_modification };
            // Best effort: only the time of a directory that this process changed is lost.
            let _ = utimensat(&self.parent, ".", &times, AtFlags::empty());
        }
    }
}

fn changed(data: &Stat) -> Timespec {
    Timespec { tv_sec: data.st_mtime, tv_nsec: data.st_mtime_nsec as _ }
}
