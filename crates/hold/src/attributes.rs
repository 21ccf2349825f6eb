//! The attributes of a held directory after its overlay is unmounted.

use crate::directories::{Entries, walk};
use crate::safe_directory::SafeDirectory;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use synconce_durable::error::{Context, Error};

/// The attributes that an overlay adds to directories of its upper.
const OWN: &[u8] = b"trusted.overlay.";
/// The beginning with which the kernel stores an attribute that begins with [`OWN`] and that a
/// process sets through an overlay (Linux 6.7, "Nesting overlayfs mounts" in
/// Documentation/filesystems/overlayfs.rst).
const ESCAPED: &[u8] = b"trusted.overlay.overlay.";
/// The kernel's limit for a list of names and for a value, in bytes (xattr(7)).
const LONGEST: usize = 64 << 10;

/// The name of an entry in the directory of the overlay. The entry says that the attributes of the
/// overlay itself are removed: attributes that still begin with [`OWN`] were set by processes.
pub(crate) const STRIPPED: &str = "stripped";

/// Removes the attributes of the overlay of a hold from the directory that `open` opens and from
/// the directories below. What processes set through the overlay gets its name back: a directory
/// that an unpacked layer made opaque is opaque afterwards. `top` is the directory's path, and
/// `scratch` the directory of the overlay.
///
/// A renamed attribute looks like an attribute of the overlay. So the renames begin only when the
/// removals are durable. The next call finishes a call that was cut short, also by a power cut.
///
/// Returns whether there were renames, so that an entry in `scratch` says that they have begun.
///
/// # Errors
/// Names `top`.
pub(crate) fn restore(
    open: impl Fn() -> Result<OwnedFd, Error>,
    top: &Path,
    scratch: &SafeDirectory,
) -> Result<bool, Error> {
    if scratch.look(OsStr::new(STRIPPED))?.is_none() {
        if !remove_own(open()?, top)? {
            return Ok(false);
        }
        sync_all(scratch)?;
        // A link, because it needs no block on a full disk.
        let made = rustix::fs::symlinkat("1", scratch, STRIPPED);
        made.on("cannot create an entry in", scratch.path())?;
        sync_all(scratch)?;
    }
    walk(open()?, top, |Entries { directory, .. }| {
        for name in names(directory, top)?.iter().filter(|name| name.starts_with(ESCAPED)) {
            rename(directory, name).on("cannot rename an attribute below", top)?;
        }
        Ok::<_, Error>(())
    })?;
    // The renames must be durable before the caller removes `scratch`.
    sync_all(scratch)?;
    Ok(true)
}

/// Syncs the file system of the held directory. A write-back error is left to the caller: a stop
/// has descriptors that were opened before, and each of them reports the error (syncfs(2)).
pub(crate) fn sync_all(scratch: &SafeDirectory) -> Result<(), Error> {
    let _ = rustix::fs::syncfs(scratch.readable()?);
    Ok(())
}

/// Removes the attributes of the overlay from the open directory `top` and from the directories
/// below. Returns whether a process has set one.
fn remove_own(directory: OwnedFd, top: &Path) -> Result<bool, Error> {
    let mut has_escaped = false;
    walk(directory, top, |Entries { directory, .. }| {
        for name in names(directory, top)?.iter().filter(|name| name.starts_with(OWN)) {
            if name.starts_with(ESCAPED) {
                has_escaped = true;
            } else {
                remove(directory, name).on("cannot remove an attribute below", top)?;
            }
        }
        Ok::<_, Error>(())
    })?;
    Ok(has_escaped)
}

/// Returns the names of the attributes of `directory`.
fn names(directory: &OwnedFd, top: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let mut names = vec![0_u8; LONGEST];
    let length = rustix::fs::flistxattr(directory, &mut names[..]);
    let length = length.on("cannot list the attributes below", top)?;
    Ok(names[..length].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
}

/// Gives the attribute with the escaped `name` the name that was meant.
fn rename(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    let mut value = vec![0_u8; LONGEST];
    let length = match rustix::fs::fgetxattr(directory, name, &mut value[..]) {
        Err(Errno::NODATA) => return Ok(()),
        length => length?,
    };
    let meant = [OWN, &name[ESCAPED.len()..]].concat();
    rustix::fs::fsetxattr(directory, &*meant, &value[..length], XattrFlags::empty())?;
    remove(directory, name)
}

fn remove(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::fremovexattr(directory, name) {
        Err(Errno::NODATA) => Ok(()),
        other => other,
    }
}
