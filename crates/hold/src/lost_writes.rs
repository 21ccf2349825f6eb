//! Notes outside the marker that a disk lost writes. The kernel reports a lost write once, so the
//! verb that gets the error makes the notes.
//!
//! The notes in memory end with the boot. So do the pages in memory that the disk does not have.

use crate::boot;
use crate::file_id::FileId;
use crate::file_system::{FileSystem, SuperBlock};
use crate::note;
use crate::resolved_path::ResolvedPath;
use crate::runtime;
use crate::state_directory;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use synconce_durable::error::Error;

/// A mount of a disk that lost writes. The marker has the loss, and later the journal of what is
/// set aside. So a restore in a container that is made anew finds the loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The kernel's boot id. Empty if it could not be read.
    pub boot: String,
    /// The super block. `None` if sysfs did not show it.
    pub super_block: Option<SuperBlock>,
}

impl Loss {
    /// Returns a loss of `system`, in this boot.
    pub(crate) fn read(system: &FileSystem) -> Self {
        Self {
            boot: boot::kernel_boot_id().unwrap_or_default(),
            super_block: system.super_block.clone(),
        }
    }

    /// Whether `system`, which is mounted now, has lost the writes; `None` if that is unknown. A
    /// later boot or mount shows what the disk has. A loss of an unknown boot counts as one of this
    /// boot.
    pub(crate) fn is_of(&self, system: &FileSystem) -> Option<bool> {
        if self.is_of_boot() == Some(false) {
            return Some(false);
        }
        Some(self.super_block.as_ref()?.number == system.super_block.as_ref()?.number)
    }

    /// Whether the writes were lost in this boot; `None` if that is unknown.
    pub(crate) fn is_of_boot(&self) -> Option<bool> {
        boot::is_now(&self.boot)
    }

    /// Whether sysfs did not show the disk. Then a later mount cannot be distinguished from this
    /// one.
    pub(crate) fn is_unseen(&self) -> bool {
        self.super_block.is_none() && self.is_of_boot() != Some(false)
    }
}

/// Notes that `systems` have lost writes of the hold `name`. One note is for the next recovery
/// ([`is_noted`]), and one for a restore ([`is_noted_for_restore`]). Notes beside the files, at
/// those of `places` that are on `systems`, are for a hold whose marker is lost with its container.
///
/// # Errors
/// Names the first note in memory that could not be made.
pub(crate) fn note(
    name: &str,
    systems: &[FileSystem],
    places: &[ResolvedPath],
) -> Result<(), Error> {
    let mut noted = make(name, FAILED);
    for system in systems {
        noted = noted.and(note_for_restore(name, system));
    }
    let is_there = |place: &ResolvedPath| systems.iter().any(|system| system.has(place.parent()));
    for place in places.iter().filter(|place| is_there(place)) {
        let _ = note::void(place);
    }
    noted
}

/// Whether [`note()`] was called for the hold `name`, or may have been.
pub(crate) fn is_noted(name: &str) -> bool {
    has(name, FAILED)
}

/// Removes the note that [`is_noted`] finds. A restore still finds its own.
pub(crate) fn forget(name: &str) -> Result<(), Error> {
    in_state_directory(name, FAILED)?.map_or(Ok(()), |note| runtime::remove_note(&note))
}

/// Notes for a restore that `system` has lost writes of the hold `name`.
pub(crate) fn note_for_restore(name: &str, system: &FileSystem) -> Result<(), Error> {
    make(name, &unsynced(system))
}

/// Whether [`note_for_restore`] was called for `system`, or may have been. The next mount is
/// another `system`.
pub(crate) fn is_noted_for_restore(name: &str, system: &FileSystem) -> bool {
    has(name, &unsynced(system))
}

/// The end of the name of the note for the next recovery.
const FAILED: &str = "failed";

/// Returns the end of the name of the note for a restore.
fn unsynced(system: &FileSystem) -> String {
    let mount = system.super_block.as_ref().map_or(system.mount, |it| it.number);
    format!("{mount}.unsynced")
}

fn make(name: &str, end: &str) -> Result<(), Error> {
    match in_state_directory(name, end)? {
        Some(note) => runtime::make_note(&note),
        None => Err(Error::new("cannot open", &state_directory::directory(), Errno::NOENT)),
    }
}

fn has(name: &str, end: &str) -> bool {
    let has = |note: Option<String>| note.is_some_and(|note| runtime::has_note(&note));
    in_state_directory(name, end).map_or(true, has)
}

/// Returns the name of the note with the `end` for the hold `name` of this state directory: another
/// state directory may have a hold of this name. `None` if there is no state directory.
fn in_state_directory(name: &str, end: &str) -> Result<Option<String>, Error> {
    let directory = FileId::read(&state_directory::directory())?;
    Ok(directory.map(|id| format!("{name}.{}.{end}", id.word())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_of_a_disk_that_has_been_mounted_since() {
        let block = |number: Option<u64>| {
            number.map(|number| SuperBlock { directory: "/sys/fs/ext4/sda1".into(), number })
        };
        let now = boot::kernel_boot_id().unwrap();
        for (boot, then, mounted, is_of) in [
            (&*now, Some(1), Some(1), Some(true)),
            (&*now, Some(1), Some(2), Some(false)),
            (&*now, None, Some(1), None),
            (&*now, Some(1), None, None),
            ("another", Some(1), Some(1), Some(false)),
            ("another", None, None, Some(false)),
            ("", Some(1), Some(2), Some(false)),
            ("", Some(1), Some(1), Some(true)),
        ] {
            let system = FileSystem {
                point: "/".into(),
                mount: 1,
                super_block: block(mounted),
                root: None,
                errors: None,
            };
            let loss = Loss { boot: boot.to_owned(), super_block: block(then) };
            assert_eq!(loss.is_of(&system), is_of, "{loss:?} {system:?}");
        }
    }
}
