//! The owner and the mode of a file that is set aside: the new file in its place gets them.

use super::journal::{Journal, Set};
use super::split;
use crate::file_id::FileId;
use crate::safe_directory::{Astray, SafeDirectory, if_there};
use rustix::fs::{Gid, Mode, Stat, Uid};
use std::ffi::OsStr;
use std::path::Path;
use synconce_durable::error::{Context, Error};

/// The owner and the mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub user: Uid,
    pub group: Gid,
    pub mode: Mode,
}

/// Returns the owner and the mode of the file that belongs at `path` and is set aside for the hold
/// `name`, the latest one. Passes over links and over directories of other users.
///
/// # Errors
/// Names the journal, or what cannot be looked at.
pub(crate) fn former(name: &str, path: &Path) -> Result<Option<Owned>, Error> {
    let journal = Journal::read(name)?;
    for set in journal.sets.iter().rev() {
        for one in &set.moves {
            let Ok(below) = path.strip_prefix(&one.from) else { continue };
            let (directory, name) = split(&one.to);
            let directory = match SafeDirectory::open_if_there(directory) {
                Err(error) if Astray::from_error(&error).is_some() => continue,
                directory => directory?,
            };
            let Some(directory) = directory else { continue };
            let Some(limit) = mode_limit(set, &directory)? else { continue };
            let found = look_below(directory, Path::new(name).iter().chain(below));
            if let Some(found) = if_there(found)?.flatten() {
                let (user, group) = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
                let mode = Mode::from_raw_mode(found.st_mode) & limit;
                return Ok(Some(Owned { user, group, mode }));
            }
        }
    }
    Ok(None)
}

/// Returns which bits of the mode a new file may take from a file in `directory`; `None` if neither
/// owner nor mode may be taken. The directory that was made for `set` is recognised, also after a
/// `chown -R`. Another directory of root may be a copy from a backup, or the user of the directory
/// above may have renamed it there. Then the new file is not writable for the group and for others.
fn mode_limit(set: &Set, directory: &SafeDirectory) -> Result<Option<Mode>, Error> {
    let all = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    let id = FileId::of_open(directory).on("cannot look at", directory.path())?;
    if id.born.is_some() && set.identity_of(directory.path()) == Some(&id) {
        return Ok(Some(all));
    }
    let is_of_root = directory.is_of_root()?;
    Ok(is_of_root.then_some(all - (Mode::WGRP | Mode::WOTH)))
}

/// Looks at the file to which `names` lead from `directory`.
fn look_below<'a>(
    mut directory: SafeDirectory,
    names: impl Iterator<Item = &'a OsStr>,
) -> Result<Option<Stat>, Error> {
    let mut names = names.peekable();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            return directory.look(name);
        }
        directory = directory.below(name)?;
    }
    Ok(None)
}
