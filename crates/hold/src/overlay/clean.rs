//! The removal of what a hold added beside and on the held files.

use super::{POINT, Place, SCRATCH};
use crate::directories::{Entries, walk};
use crate::safe_directory::{SafeDirectory, type_of};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use synconce_durable::error::{Context, Error};

/// The attributes that an overlay adds to directories of its upper.
const ATTRIBUTES: &[u8] = b"trusted.overlay.";
/// The kernel's limit for a list of names, in bytes (xattr(7)).
const LONGEST: usize = 64 << 10;

impl Place {
    /// Removes what the hold added: its directories, the link, and the attributes on the
    /// directories of a held directory. The overlay must not be mounted.
    ///
    /// # Errors
    /// Names the act and path.
    pub fn clean(&self) -> Result<(), Error> {
        match SafeDirectory::open_if_there(&self.parent)? {
            Some(parent) => self.clean_in(&parent),
            None => Ok(()),
        }
    }

    pub(super) fn clean_in(&self, parent: &SafeDirectory) -> Result<(), Error> {
        // After a power cut a part of the directories may be missing.
        let Some(all) = parent.inner(OsStr::new(SCRATCH))? else { return Ok(()) };
        if let Some(scratch) = all.inner(&self.name)? {
            // A start that was killed may have left its overlay there.
            let point = scratch.path_to(OsStr::new(POINT));
            match unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Err(Errno::INVAL | Errno::NOENT) => {}
                other => other.on("cannot unmount", &scratch.path().join(POINT))?,
            }
            // Before its directories are removed, which show that the attributes are of the hold.
            let held = parent.look(&self.name)?;
            if !self.is_file && held.is_some_and(|held| type_of(&held).is_dir()) {
                strip(parent.open_directory(&self.name)?, &self.path())?;
            }
            all.remove(&self.name)?;
        }
        parent.remove_if_empty(OsStr::new(SCRATCH))
    }
}

/// Removes what a hold that a crash ended has added at `places`, durably: the mark of
/// [`Place::is_marked`] must not come back after the marker is removed.
///
/// # Errors
/// Names the act and path.
pub fn clean(places: &[Place]) -> Result<(), Error> {
    for place in places {
        // On a file system that was made anew there may be no such directory.
        let Some(parent) = SafeDirectory::open_if_there(&place.parent)? else { continue };
        place.clean_in(&parent)?;
        match parent.inner(OsStr::new(SCRATCH))? {
            Some(all) => all.sync()?,
            None => parent.sync()?,
        }
    }
    Ok(())
}

/// Removes the attributes of an overlay from the open directory `top` and the directories below.
fn strip(directory: OwnedFd, top: &Path) -> Result<(), Error> {
    walk(directory, top, |Entries { directory, .. }| {
        let mut names = vec![0_u8; LONGEST];
        let length = rustix::fs::flistxattr(directory, &mut names[..]);
        let length = length.on("cannot list the attributes below", top)?;
        let names = names[..length].split(|byte| *byte == 0);
        for name in names.filter(|name| name.starts_with(ATTRIBUTES)) {
            match rustix::fs::fremovexattr(*directory, name) {
                Err(Errno::NODATA) => {}
                other => other.on("cannot remove an attribute below", top)?,
            }
        }
        Ok(())
    })
}
