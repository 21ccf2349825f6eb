//! Directories in the root of another system, which its author may have filled with hostile links.

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Opens the directory `path`, relative to `root`, for reading. Links are followed as in a process
/// whose root is `root`, so no link leads out of it.
///
/// # Errors
/// Those of open(2) and openat2(2).
pub fn open(root: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    open_at(&open_root(root)?, path, OFlags::RDONLY)
}

/// Returns the path of the directory `path`, relative to `root`, by which links lead where they
/// lead in a process whose root is `root`. The last directories of `path` may be missing.
///
/// # Errors
/// Those of openat2(2); `ELOOP` for a link that leads nowhere.
pub fn resolve(root: &Path, path: &Path) -> Result<PathBuf, Errno> {
    let at = open_root(root)?;
    let mut missing = Vec::new();
    for there in path.ancestors() {
        let found = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        match open_at(&at, found, OFlags::PATH) {
            Err(Errno::NOENT) => missing.extend(there.file_name()),
            opened => {
                let opened = opened?;
                if let Some(first) = missing.last()
                    && statat(&opened, *first, AtFlags::SYMLINK_NOFOLLOW).is_ok()
                {
                    return Err(Errno::LOOP);
                }
                let (shown, base) = (shown(&opened)?, shown(&at)?);
                // The root is unlinked, or out of reach: its own path leads no further either.
                let Ok(below) = shown.strip_prefix(base) else { return Ok(root.join(path)) };
                return Ok(missing.iter().rev().fold(root.join(below), |path, it| path.join(it)));
            }
        }
    }
    Ok(root.join(path))
}

/// Returns the kernel's path of `directory`.
fn shown(directory: &OwnedFd) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    Ok(OsString::from_vec(path.into_bytes()).into())
}

fn open_root(root: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn open_at(root: &OwnedFd, path: &Path, how: OFlags) -> Result<OwnedFd, Errno> {
    let flags = how | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    loop {
        match openat2(root, path, flags, Mode::empty(), within) {
            // A rename or mount happened anywhere while ".." was looked up (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}
