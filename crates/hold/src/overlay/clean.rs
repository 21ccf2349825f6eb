//! The removal of what a hold added beside and on the held files.

use super::{POINT, ResolvedPath, SCRATCH, WORK, has_mark, own};
use crate::attributes;
use crate::note;
use crate::safe_directory::{SafeDirectory, sync_file_systems, type_of};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::ffi::OsStr;
use synconce_durable::error::{Context, Error};

impl ResolvedPath {
    /// Removes what the hold added: its directories, the link, and the attributes on the
    /// directories of a held directory. The overlay must not be mounted.
    pub fn clean(&self) -> Result<(), Error> {
        match SafeDirectory::open_if_there(self.parent())? {
            Some(parent) => self.clean_in(&parent),
            None => Ok(()),
        }
    }

    pub(super) fn clean_in(&self, parent: &SafeDirectory) -> Result<(), Error> {
        // After a power cut a part of the directories may be missing.
        let Some(all) = parent.inner(OsStr::new(SCRATCH))? else { return Ok(()) };
        if let Some(scratch) = all.inner(self.name())? {
            own::refuse_foreign(&scratch)?;
            // A start that was killed may have left its overlay there.
            let point = scratch.path_to(OsStr::new(POINT));
            match unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Err(Errno::INVAL | Errno::NOENT) => {}
                other => other.on("cannot unmount", &scratch.path().join(POINT))?,
            }
            // Before the mark is removed, which shows that an overlay of a hold was mounted.
            if self.restore_attributes_in(parent, &scratch)? {
                // The mark first: while it is there, the entry of `restore` must be there, too.
                scratch.remove(OsStr::new(WORK))?;
                attributes::sync_all(&scratch)?;
            }
            // The note last: until then it shows that the directory is of a hold.
            for name in scratch.names()?.iter().filter(|name| !note::is_note(name)) {
                scratch.remove(name)?;
            }
            all.remove(self.name())?;
        }
        parent.remove_if_empty(OsStr::new(SCRATCH))
    }

    /// Gives the directories of a held directory their own attributes back: see
    /// [`attributes::restore`]. Without the mark the attributes are not of the hold.
    fn restore_attributes_in(
        &self,
        parent: &SafeDirectory,
        scratch: &SafeDirectory,
    ) -> Result<bool, Error> {
        let held = parent.look(self.name())?;
        let is_directory = held.is_some_and(|held| type_of(&held).is_dir());
        if self.is_file() || !is_directory || !has_mark(scratch)? {
            return Ok(false);
        }
        attributes::restore(|| parent.open_directory(self.name()), &self.path(), scratch)
    }
}

/// Gives the held directories at `places` their own attributes back, before they are renamed. The
/// marks of [`ResolvedPath::is_marked`] stay.
pub fn restore_attributes(places: &[ResolvedPath]) -> Result<(), Error> {
    for place in places {
        let Some(parent) = SafeDirectory::open_if_there(place.parent())? else { continue };
        let Some(scratch) = place.scratch()? else { continue };
        own::refuse_foreign(&scratch)?;
        place.restore_attributes_in(&parent, &scratch)?;
    }
    Ok(())
}

/// Removes what a hold that a crash ended has added at `places`, durably: the mark of
/// [`ResolvedPath::is_marked`] must not come back after the marker is removed.
pub fn clean(places: &[ResolvedPath]) -> Result<(), Error> {
    for place in places {
        // On a file system that was made anew there may be no such directory.
        let Some(parent) = SafeDirectory::open_if_there(place.parent())? else { continue };
        place.clean_in(&parent)?;
        match parent.inner(OsStr::new(SCRATCH))? {
            Some(all) => all.sync()?,
            None => parent.sync()?,
        }
    }
    Ok(())
}

/// Syncs the file systems of the files at `places`: the hold has answered syncs of them without
/// doing them. Calls `on_loss` as `sync_file_systems` does.
///
/// # Errors
/// As for `sync_file_systems`.
pub fn sync(places: &[ResolvedPath], on_loss: impl FnMut(Error)) -> Result<(), Error> {
    let directories = places.iter().flat_map(|place| {
        // A held directory can be a mount point.
        let held = (!place.is_file()).then(|| place.path()).filter(|path| path.is_dir());
        std::iter::once(place.parent().to_owned()).chain(held)
    });
    sync_file_systems(directories, on_loss)
}
