//! Held files whose marker is lost: it was in memory, or in the layer of a container that was made
//! anew, or in another state directory.

use crate::aside::Journal;
use crate::config::Config;
use crate::error::Unclean;
use crate::file_id::FileId;
use crate::mounted::file_system_of;
use crate::overlay::ResolvedPath;
use crate::record::{HoldRecord, SuperBlock};
use crate::safe_directory::{SafeDirectory, if_there};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_durable::record::boot_id;
use synconce_probe::super_block;

/// The link with the note, in the directory of the overlay.
pub(crate) const NOTE: &str = "started";

/// Returns why the hold of `config`, which has no marker, cannot go on: the kernel's mark beside a
/// held path says that the hold was not stopped. A stop removes the mark durably before the marker.
/// While the file system stays mounted, the kernel has every write.
///
/// A recovery removes the mark, too: a recovery that was cut short has its journal.
///
/// # Errors
/// Names the path that cannot be looked at.
pub(crate) fn unclean(config: &Config) -> Result<Option<Unclean>, Error> {
    if Journal::read(&config.name)?.is_setting_aside() {
        return Ok(Some(Unclean::Marker));
    }
    let mut why = None;
    for held in &config.hold {
        let Some(place) = if_there(ResolvedPath::of(held))? else { continue };
        // Another container may hold the files now, with a marker of its own.
        if place.is_marked()? && place.is_in_use()? != Some(true) && !has_marker(&place)? {
            match was_mounted(&place) {
                Some(true) => {}
                Some(false) => return Ok(Some(Unclean::Marker)),
                None => why = Some(Unclean::UnknownMarker),
            }
        }
    }
    Ok(why)
}

/// Whether the marker of a hold of another name has `place`.
fn has_marker(place: &ResolvedPath) -> Result<bool, Error> {
    // A damaged marker may have any path. Its hold is to be recovered first.
    let has = |name: &String| {
        let record = HoldRecord::read(name).ok().flatten();
        let places = record.and_then(|record| record.places().ok());
        places.is_none_or(|places| places.iter().any(|other| other.path() == place.path()))
    };
    Ok(HoldRecord::names()?.iter().any(has))
}

/// Notes in `scratch`, beside the held path of `place`, on which boot and super block its overlay
/// is mounted, as the target of a link: a crash keeps a link whole or not at all. The note has the
/// identity of its directory, too: a backup of the files that was made meanwhile has a copy of the
/// note.
///
/// # Errors
/// Names the act and path.
pub(crate) fn write_note(place: &ResolvedPath, scratch: &SafeDirectory) -> Result<(), Error> {
    if mutant::is("hold-note-unwritten") {
        return Ok(());
    }
    let (boot, system) = (boot_id()?, file_system_of(place.parent())?);
    let directory_id = id_of(scratch).on("cannot look at", scratch.path())?;
    let target = match system.super_block {
        None => format!("{boot} {directory_id}"),
        Some(SuperBlock { directory, number }) => {
            format!("{boot} {directory_id} {number} {}", directory.display())
        }
    };
    let made = rustix::fs::symlinkat(target, scratch, NOTE);
    made.on("cannot create a note in", scratch.path())
}

/// Replaces the note beside `place` by one that names no boot, after a lost write. If the marker is
/// lost later, with its container, [`unclean`] still finds the hold interrupted. A full disk may be
/// left without a note, and a read-only one keeps the old note.
///
/// # Errors
/// Names the act and path.
pub(crate) fn void_note(place: &ResolvedPath) -> Result<(), Error> {
    if mutant::is("hold-loss-unmarked") {
        return Ok(());
    }
    let Some(scratch) = place.scratch()?.filter(|scratch| is_noted(scratch).unwrap_or(false))
    else {
        return Ok(());
    };
    let target = format!("failed {}", id_of(&scratch).on("cannot look at", scratch.path())?);
    rustix::fs::unlinkat(&scratch, NOTE, AtFlags::empty())
        .and_then(|()| rustix::fs::symlinkat(target, &scratch, NOTE))
        .on("cannot change a note in", scratch.path())
}

/// Returns the identity of the directory that has the note, as a word.
fn id_of(scratch: &SafeDirectory) -> Result<String, Errno> {
    FileId::of_open(scratch).map(|id| id.word())
}

/// Whether `scratch` is the directory in which a hold wrote its note.
///
/// # Errors
/// Names the note that cannot be read.
pub(crate) fn is_noted(scratch: &SafeDirectory) -> Result<bool, Error> {
    let id = id_of(scratch).on("cannot look at", scratch.path())?;
    match rustix::fs::readlinkat(scratch, NOTE, Vec::new()) {
        Err(Errno::NOENT | Errno::INVAL) => Ok(false),
        note => {
            let note = note.on("cannot read a note in", scratch.path())?;
            Ok(note.to_str().is_ok_and(|note| note.split(' ').nth(1) == Some(&*id)))
        }
    }
}

/// Whether the file system of `place` has been mounted all the time since its overlay was; `None`
/// if that is unknown.
pub(crate) fn was_mounted(place: &ResolvedPath) -> Option<bool> {
    let scratch = place.scratch().ok()??;
    let note = rustix::fs::readlinkat(&scratch, NOTE, Vec::new()).ok()?;
    let mut words = note.to_str().ok()?.splitn(4, ' ');
    let (boot, directory_id) = (words.next()?, words.next()?);
    if id_of(&scratch).ok()? != directory_id {
        return None;
    }
    if boot != boot_id().ok()? {
        return Some(false);
    }
    let (number, directory) = (words.next()?.parse().ok()?, words.next()?);
    super_block::is_alive(Path::new(directory), number)
}
