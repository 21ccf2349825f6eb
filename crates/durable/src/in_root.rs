//! Directories in the root of another system, which its author may have filled with hostile links.

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Opens the directory `path`, relative to `root`, for reading. Links are followed as in a process
/// whose root is `root`, so no link leads out of it.
///
/// # Errors
/// Those of open(2) and openat2(2).
pub fn open(root: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let root = rustix::fs::open(root, flags | OFlags::PATH, Mode::empty())?;
    loop {
        match openat2(&root, path, flags, Mode::empty(), within) {
            // A rename or mount happened anywhere while ".." was looked up (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}
