//! The note beside a held path: on which boot and super block the overlay of the path is mounted,
//! and whether the disk has lost writes since. It outlives a marker that is lost.

use crate::boot::{self, kernel_boot_id};
use crate::file_id::FileId;
use crate::file_system::{FileSystem, SuperBlock};
use crate::resolved_path::ResolvedPath;
use crate::safe_directory::SafeDirectory;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_probe::super_block;

/// The link with the note, in the directory of the overlay.
pub(crate) const NOTE: &str = "started";
/// The link that takes the place of [`NOTE`].
pub(crate) const NEW_NOTE: &str = "started.new";
/// The name that [`NOTE`] gets after a lost write, if it cannot be replaced.
pub(crate) const FAILED_NOTE: &str = "failed";
/// The first word of a note after a lost write.
const FAILED: &str = "failed";

/// Writes the note beside the held path of `place`, in `scratch`: the boot and the super block on
/// which the overlay is mounted. The note is the target of a link, because a crash leaves a whole
/// link or none. The note also has the identity of its directory. So a copy of the note in a backup
/// of the files is recognised.
pub(crate) fn write(place: &ResolvedPath, scratch: &SafeDirectory) -> Result<(), Error> {
    if mutant::is("hold-note-unwritten") {
        return Ok(());
    }
    let directory_id = id_of(scratch).on("cannot look at", scratch.path())?;
    let target = format!("{} {directory_id}{}", kernel_boot_id()?, super_block_of(place)?);
    let made = rustix::fs::symlinkat(target, scratch, NOTE);
    made.on("cannot create a note in", scratch.path())
}

/// Returns what a note says of the super block of `place`: nothing if sysfs does not show it.
fn super_block_of(place: &ResolvedPath) -> Result<String, Error> {
    let system = FileSystem::of(place.parent())?;
    let said = system.super_block.map(|it| format!(" {} {}", it.number, it.directory.display()));
    Ok(said.unwrap_or_default())
}

/// Replaces the note beside `place` after a lost write. If the marker is lost later, with its
/// container, [`unclean`](crate::lost::unclean) still finds the hold interrupted, and
/// [`has_lost_writes`] the loss. A read-only disk keeps the old note.
pub(crate) fn void(place: &ResolvedPath) -> Result<(), Error> {
    if mutant::is("hold-loss-unmarked") {
        return Ok(());
    }
    let Some(scratch) = place.scratch()?.filter(|scratch| is_noted(scratch).unwrap_or(false))
    else {
        return Ok(());
    };
    let directory_id = id_of(&scratch).on("cannot look at", scratch.path())?;
    let note = format!("{FAILED} {directory_id} {}{}", kernel_boot_id()?, super_block_of(place)?);
    // A full disk has no block or no inode for a second link, and room for another name.
    let replaced = replace_note(&scratch, &note).or_else(|error| {
        match rustix::fs::renameat(&scratch, NOTE, &scratch, FAILED_NOTE) {
            // An earlier loss has renamed the note.
            Err(Errno::NOENT) => Ok(()),
            renamed => renamed.map_err(|_| error),
        }
    });
    replaced.on("cannot change a note in", scratch.path())
}

/// Whether a note may have the `name`.
pub(crate) fn is_note(name: &OsStr) -> bool {
    name == NOTE || name == FAILED_NOTE
}

/// Replaces the note in `scratch` in one step: after a kill the old one is there, or the new one.
fn replace_note(scratch: &SafeDirectory, target: &str) -> Result<(), Errno> {
    // A kill may have left one.
    let _ = rustix::fs::unlinkat(scratch, NEW_NOTE, AtFlags::empty());
    rustix::fs::symlinkat(target, scratch, NEW_NOTE)?;
    rustix::fs::renameat(scratch, NEW_NOTE, scratch, NOTE)?;
    // The new note says more.
    let _ = rustix::fs::unlinkat(scratch, FAILED_NOTE, AtFlags::empty());
    Ok(())
}

/// Returns the text of the note in `scratch`, and whether its name says that writes were lost.
fn read_note(scratch: &SafeDirectory) -> Result<(CString, bool), Errno> {
    match rustix::fs::readlinkat(scratch, FAILED_NOTE, Vec::new()) {
        Err(Errno::NOENT) => Ok((rustix::fs::readlinkat(scratch, NOTE, Vec::new())?, false)),
        note => Ok((note?, true)),
    }
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
    match read_note(scratch) {
        Err(Errno::NOENT | Errno::INVAL) => Ok(false),
        note => {
            let (note, _) = note.on("cannot read a note in", scratch.path())?;
            Ok(note.to_str().is_ok_and(|note| note.split(' ').nth(1) == Some(&*id)))
        }
    }
}

/// Whether the file system of `place` has been mounted all the time since its overlay was mounted,
/// and no verb has found a lost write there; `None` if that is unknown.
pub(crate) fn was_mounted(place: &ResolvedPath) -> Option<bool> {
    let note = Note::read(place)?;
    if note.has_failed { Some(false) } else { note.is_of_this_mount() }
}

/// Whether the note beside `place` says that the file system of `place` has lost a write, or may
/// have, since the file system was mounted.
pub(crate) fn has_lost_writes(place: &ResolvedPath) -> bool {
    Note::read(place).is_some_and(|note| note.has_failed && note.is_of_this_mount() != Some(false))
}

/// What a note says.
struct Note {
    /// The disk lost a write: see [`void`].
    has_failed: bool,
    /// The boot in which the note was made. `None` if another boot may have lost the writes.
    boot: Option<String>,
    super_block: Option<SuperBlock>,
}

impl Note {
    /// Returns the note beside `place`, unless it is a copy.
    fn read(place: &ResolvedPath) -> Option<Self> {
        let scratch = place.scratch().ok()??;
        let (note, is_renamed) = read_note(&scratch).ok()?;
        let words: Vec<_> = note.to_str().ok()?.split(' ').collect();
        let (has_failed, directory_id, boot, rest) = match *words {
            // The text is from the start of the hold, so it does not say which mount lost the
            // writes.
            [_, id, ..] if is_renamed => (true, id, None, &[][..]),
            [FAILED, id, boot, ref rest @ ..] => (true, id, Some(boot), rest),
            [boot, id, ref rest @ ..] => (false, id, Some(boot), rest),
            _ => return None,
        };
        if id_of(&scratch).ok()? != directory_id {
            return None;
        }
        let super_block = match *rest {
            [number, directory] => {
                Some(SuperBlock { directory: directory.into(), number: number.parse().ok()? })
            }
            _ => None,
        };
        Some(Self { has_failed, boot: boot.map(str::to_owned), super_block })
    }

    /// Whether the note was made in this boot, and its super block has been mounted since.
    fn is_of_this_mount(&self) -> Option<bool> {
        if !boot::is_now(self.boot.as_ref()?)? {
            return Some(false);
        }
        let SuperBlock { directory, number } = self.super_block.as_ref()?;
        super_block::is_alive(directory, *number)
    }
}
