//! Opens directories and files below an open directory, never across a mount.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, fstat, openat, openat2, statx,
};
use rustix::io::Errno;

/// The flags for directories: read-only, without changing the access time.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The flags for files. If a file was replaced by a named pipe, the open does not wait for the
/// pipe's other end.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether mounts are crossed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mounts {
    /// Stop with `EXDEV`.
    Stop,
    Cross,
}

impl Mounts {
    fn resolve(self) -> ResolveFlags {
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match self {
            Self::Stop => within | ResolveFlags::NO_XDEV,
            Self::Cross => within,
        }
    }

    /// Opens the directory `name` in `parent`.
    pub fn directory(self, parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
        self.quietly(parent, name, DIRECTORY)
    }

    /// Opens the regular file `name` in `parent` for reading. The caller must check that the
    /// file is regular.
    pub fn file(self, parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
        self.quietly(parent, name, FILE)
    }

    /// Opens `name` with `O_PATH`, which needs no permission for the file itself.
    pub fn reference(self, parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(parent, name, flags, Mode::empty(), self.resolve())
    }

    /// Opens without changing the access time, if permitted: `O_NOATIME` requires the file's
    /// owner or `CAP_FOWNER` (open(2)).
    fn quietly(self, parent: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        match openat2(parent, name, flags | OFlags::NOATIME, Mode::empty(), self.resolve()) {
            Err(Errno::PERM) => openat2(parent, name, flags, Mode::empty(), self.resolve()),
            result => result,
        }
    }
}

/// The device and inode of a directory, valid while the directory exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub fn read(directory: &OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(directory)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// Opens the parent of `directory`, if the parent is still the expected one.
pub(crate) fn above(directory: &OwnedFd, expected: Identity) -> Option<OwnedFd> {
    let parent = openat(directory, c"..", DIRECTORY, Mode::empty()).ok()?;
    (Identity::read(&parent).ok()? == expected).then_some(parent)
}

/// Returns the attributes of `name` in `parent`; a symbolic link is not followed.
pub(crate) fn look(parent: BorrowedFd<'_>, name: &CStr) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(parent, name, flags, StatxFlags::BASIC_STATS)
}

/// Returns the type of the file with these attributes.
pub(crate) fn kind_of(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// Returns the attributes of an open file.
pub(crate) fn look_at(file: impl AsFd) -> Result<Statx, Errno> {
    statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}
