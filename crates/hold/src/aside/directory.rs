//! The directories of files that are set aside. The user of the directory above can rename any
//! directory there to the name of one of these, so the journal has the identity of each.

use super::Set;
use super::journal::AsideDirectory;
use super::split;
use crate::file_id::FileId;
use crate::safe_directory::{Astray, SafeDirectory};
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;

/// Opens the directory `path` of `set`; `None` if it does not exist. Makes root its owner again.
///
/// # Errors
/// [`Astray::Another`] if another directory has the name. The journal does not have the identity of
/// a directory whose making was cut short: [`Astray::NotOfHold`] if it is not empty.
pub(super) fn open(set: &Set, path: &Path) -> Result<Option<SafeDirectory>, Error> {
    open_at(set, path, path)
}

/// Opens the directory `path` of `set` as [`open`] does, at `place`, where it is now.
///
/// # Errors
/// As for [`open`].
pub(super) fn open_at(
    set: &Set,
    path: &Path,
    place: &Path,
) -> Result<Option<SafeDirectory>, Error> {
    let (above, name) = split(place);
    let Some(parent) = SafeDirectory::open_if_there(above)? else { return Ok(None) };
    let made = set.identity_of(path);
    let Some(found) = parent.inner_or_taken_back(name, made)? else { return Ok(None) };
    match made {
        _ if mutant::is("hold-settle-by-name") => {}
        None => found.refuse_entries_except(&[])?,
        Some(made) if FileId::of_open(&found).on("cannot look at", path)? == *made => {}
        Some(made) => return Err(Astray::Another(made.inode).on(path)),
    }
    Ok(Some(found))
}

/// Makes the directories of `set` that do not exist. Returns whether there are new identities, for
/// the journal. Nothing may be put there before the journal is durable.
///
/// # Errors
/// As for [`open`].
pub(super) fn make_all(set: &mut Set) -> Result<bool, Error> {
    let mut has_new = false;
    for path in set.directories() {
        if set.identity_of(&path).is_some() && open(set, &path)?.is_some() {
            continue;
        }
        let (above, name) = split(&path);
        let made = SafeDirectory::open(above)?.make(name)?;
        // One that exists was made before a crash.
        made.refuse_entries_except(&[])?;
        let id = FileId::of_open(&made).on("cannot look at", &path)?;
        set.made.retain(|directory| directory.path != path);
        set.made.push(AsideDirectory { path, id });
        has_new = true;
    }
    Ok(has_new)
}

/// Removes the directory `path` of `set` with its content, and returns the number of entries that
/// were removed. A missing directory has none.
///
/// # Errors
/// As for [`open`]; otherwise names the first entry that stays.
pub(super) fn remove(set: &Set, path: &Path) -> Result<u64, Error> {
    let Some(directory) = open(set, path)? else { return Ok(0) };
    let (above, name) = split(path);
    SafeDirectory::open(above)?.remove_opened(name, &directory)
}
