//! The processes that have files of a held path open, without an overlay between.

use crate::open_files::{self, FileUser, OpenFile};
use crate::overlay::ResolvedPath;
use crate::patience::eventually;
use rustix::mount::{OpenTreeFlags, open_tree};
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_sys::overlay::link_to;

/// Returns the first of `paths` that processes have open for as long as a verb waits, and these
/// processes. `None` if there is no such path.
///
/// # Errors
/// Names a directory that cannot be read.
pub(crate) fn that_stay(paths: &[PathBuf]) -> Result<Option<(PathBuf, Vec<FileUser>)>, Error> {
    let mut found = None;
    let are_free = || {
        let open = open_files::all();
        found = None;
        for path in paths {
            // By their numbers: a process may reach a file by a bind mount, a hard link or in
            // another mount namespace.
            let files = identities(path)?;
            let is_there = |file: &&OpenFile| files.contains(&(file.device, file.inode));
            let users = open_files::users(open.iter().filter(is_there));
            if !users.is_empty() {
                found = Some((path.clone(), users));
                return Ok::<_, Error>(false);
            }
        }
        Ok(true)
    };
    eventually(are_free)?;
    Ok(found)
}

/// As [`that_stay`], for the files below the overlays that are mounted over `places`.
///
/// # Errors
/// Names a directory that cannot be opened or read.
pub(crate) fn that_stay_below(
    places: &[&ResolvedPath],
) -> Result<Option<(PathBuf, Vec<FileUser>)>, Error> {
    // A clone of one mount has none of the mounts on it.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let (mut clones, mut below) = (Vec::new(), Vec::new());
    for place in places {
        let clone = open_tree(place.open_parent()?, "", flags);
        let clone = clone.on("cannot clone the mount of", place.parent())?;
        below.push(Path::new(&link_to(clone.as_fd())).join(place.name()));
        clones.push(clone);
    }
    let found = that_stay(&below)?;
    Ok(found.map(|(path, users)| {
        let at = below.iter().position(|one| *one == path);
        (at.map_or(path, |at| places[at].path()), users)
    }))
}

/// Returns the device and inode numbers of `path` and of everything below it.
fn identities(path: &Path) -> Result<HashSet<(u64, u64)>, Error> {
    let mut found = HashSet::from_iter(open_files::identity(path));
    let mut directories = Vec::from_iter(path.is_dir().then(|| path.to_owned()));
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            // The daemon's files come and go.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.on("cannot read", &directory)?,
        };
        for entry in entries {
            let entry = entry.on("cannot read", &directory)?;
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if !is_link {
                found.extend(open_files::identity(&entry.path()));
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            }
        }
    }
    Ok(found)
}
