//! The owner, the mode and the access lists of a file that is set aside: the new file in its place
//! gets them.

use super::journal::{Journal, Set};
use super::split;
use crate::file_id::FileId;
use crate::safe_directory::{Astray, SafeDirectory, if_there};
use rustix::fs::{Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;
use synconce_durable::error::{Context, Error};

/// The attributes of an access list (acl(5)) and of the list that new files in a directory get.
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
/// The kernel's limit for a value, in bytes (xattr(7)).
const LONGEST: usize = 64 << 10;

/// Access lists, by their attributes.
type Lists = Vec<(&'static str, Vec<u8>)>;

/// The owner, the mode and the access lists of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    user: Uid,
    group: Gid,
    mode: Mode,
    lists: Lists,
}

impl Owned {
    /// Gives the new file at `path`, which is open as `made`, the owner, the mode and the lists.
    pub(crate) fn give(&self, made: impl AsFd, path: &Path) -> Result<(), Error> {
        let owned = rustix::fs::fchown(&made, Some(self.user), Some(self.group));
        owned.on("cannot set the owner of", path)?;
        // Before the mode: with a list, the mode of the group limits the list, and the group itself
        // may have less.
        for (list, value) in &self.lists {
            let set = rustix::fs::fsetxattr(&made, *list, value, XattrFlags::empty());
            set.on("cannot set an access list of", path)?;
        }
        rustix::fs::fchmod(&made, self.mode).on("cannot set the mode of", path)
    }
}

/// All bits of a mode that a new file may take.
const ALL: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// Returns the owner, the mode and the lists of the file that belongs at `path` and is set aside
/// for the hold `name`, the latest one. Passes over links and over directories of other users.
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
            if let Some((found, mut lists)) = if_there(found)?.flatten() {
                let (user, group) = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
                let mode = Mode::from_raw_mode(found.st_mode) & limit;
                if limit != ALL {
                    // A list may let anyone write.
                    lists.clear();
                }
                return Ok(Some(Owned { user, group, mode, lists }));
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
    let id = FileId::of_open(directory).on("cannot look at", directory.path())?;
    if id.born.is_some() && set.identity_of(directory.path()) == Some(&id) {
        return Ok(Some(ALL));
    }
    let is_of_root = directory.is_of_root()?;
    Ok(is_of_root.then_some(ALL - (Mode::WGRP | Mode::WOTH)))
}

/// Looks at the file to which `names` lead from `directory`, and at its access lists.
fn look_below<'a>(
    mut directory: SafeDirectory,
    names: impl Iterator<Item = &'a OsStr>,
) -> Result<Option<(Stat, Lists)>, Error> {
    let mut names = names.peekable();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            let Some(found) = directory.look(name)? else { return Ok(None) };
            return Ok(Some((found, lists_of(&directory, name)?)));
        }
        directory = directory.below(name)?;
    }
    Ok(None)
}

/// Returns the access lists of `name`, which may be a link.
fn lists_of(directory: &SafeDirectory, name: &OsStr) -> Result<Lists, Error> {
    let mut lists = Vec::new();
    for list in LISTS {
        let mut value = vec![0_u8; LONGEST];
        match rustix::fs::lgetxattr(directory.path_to(name), list, &mut value[..]) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            length => {
                let length = length.on("cannot read", &directory.path().join(name))?;
                lists.push((list, value[..length].to_vec()));
            }
        }
    }
    Ok(lists)
}
