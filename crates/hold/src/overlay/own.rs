//! Which directories beside a held path are the hold's own. The user of the directory above can
//! rename a directory of root to the name of one.

use super::{POINT, UPPER, WORK};
use crate::attributes;
use crate::directories::{Entries, walk};
use crate::note;
use crate::safe_directory::{Astray, SafeDirectory, type_of};
use rustix::fs::{AtFlags, FileType};
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;

/// The entries of the directory of an overlay that are symbolic links.
const LINKS: [&str; 4] = [attributes::STRIPPED, note::NOTE, note::NEW_NOTE, note::FAILED_NOTE];
const ENTRIES: [&str; 7] = [UPPER, WORK, POINT, LINKS[0], LINKS[1], LINKS[2], LINKS[3]];

/// Refuses the directory `scratch` of an overlay if no hold made the directory: the note of a hold
/// is missing, and a removal would lose data. A hold that a crash has ended may have left no note.
///
/// # Errors
/// [`Astray::NotOfHold`], or names what cannot be read.
pub(super) fn refuse_foreign(scratch: &SafeDirectory) -> Result<(), Error> {
    if mutant::is("hold-foreign-removed") {
        return Ok(());
    }
    scratch.refuse_entries_except(&ENTRIES)?;
    if note::is_noted(scratch)? || !has_data(scratch)? {
        Ok(())
    } else {
        Err(Astray::NotOfHold.on(scratch.path()))
    }
}

/// Whether `scratch` has more than a hold that a crash has ended leaves: directories, empty files
/// of the kernel, links to the held file, and the entries that are symbolic links.
fn has_data(scratch: &SafeDirectory) -> Result<bool, Error> {
    let top = scratch.path();
    let mut has_data = false;
    walk(scratch.readable()?, top, |Entries { directory, entries, .. }| {
        for (name, _) in entries.iter().filter(|(_, kind)| !kind.is_dir()) {
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.on("cannot look below", top)?;
            has_data |= match type_of(&stat) {
                FileType::RegularFile => stat.st_size > 0 && stat.st_nlink == 1,
                FileType::Symlink => !LINKS.iter().any(|link| name.to_bytes() == link.as_bytes()),
                _ => true,
            };
        }
        Ok::<_, Error>(())
    })?;
    Ok(has_data)
}
