//! Opening directories and files below one that is open, and never beyond a mount.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags, fstat, openat, openat2, statx,
};
use rustix::io::Errno;

/// How directories are opened: not for writing, and leaving the access time alone.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How files are opened: should one have become a named pipe since it was looked at, the
/// open does not wait for its other end.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Whether mounts are crossed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mounts {
    /// `EXDEV` instead.
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

    /// Opens the regular file `name` in `parent` to be read. It may turn out to be
    /// something else.
    pub fn file(self, parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
        self.quietly(parent, name, FILE)
    }

    /// A descriptor that only stands for `name`, for which no right to it is needed.
    pub fn reference(self, parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(parent, name, flags, Mode::empty(), self.resolve())
    }

    /// Without a trace in the access time, which only the owner may ask for.
    fn quietly(self, parent: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        match openat2(parent, name, flags | OFlags::NOATIME, Mode::empty(), self.resolve()) {
            Err(Errno::PERM) => openat2(parent, name, flags, Mode::empty(), self.resolve()),
            result => result,
        }
    }
}

/// Which directory one is, as long as it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub fn of(directory: &OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(directory)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// Opens the directory above `directory`, if it is the one that it was.
pub(super) fn above(directory: &OwnedFd, expected: Identity) -> Option<OwnedFd> {
    let parent = openat(directory, c"..", DIRECTORY, Mode::empty()).ok()?;
    (Identity::of(&parent).ok()? == expected).then_some(parent)
}

/// What `name` in `parent` is, which is not followed.
pub(super) fn look(parent: BorrowedFd<'_>, name: &CStr) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(parent, name, flags, StatxFlags::BASIC_STATS)
}

/// What an open file is.
pub(super) fn look_at(file: impl AsFd) -> Result<Statx, Errno> {
    statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}

/// `/proc/self/fd/N/NAME`: a path for the calls that know no descriptors. It is never too
/// long, and the name itself can be left unfollowed.
pub(super) fn path_of(parent: BorrowedFd<'_>, name: &CStr) -> Vec<u8> {
    use std::os::fd::AsRawFd;
    let mut path = format!("/proc/self/fd/{}/", parent.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    path
}
