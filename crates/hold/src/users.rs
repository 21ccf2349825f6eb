//! Finds processes that have files of a held path open. Only open files of the disk count, not
//! files that are open in an overlay over them.

use crate::open_files::{self, FileUser, OpenFile};
use crate::patience::eventually;
use crate::resolved_path::ResolvedPath;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_sys::lease::is_open_for_writing;
use synconce_sys::overlay::link_to;

/// Waits until no process has one of `paths` open, at most as long as a verb waits. Then returns
/// the first path that is still open, with its processes; `None` if all are closed.
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

/// Like [`that_stay`], for the files that the overlays over `places` cover.
///
/// # Errors
/// Names a directory that cannot be opened or read.
pub(crate) fn that_stay_below(
    places: &[&ResolvedPath],
) -> Result<Option<(PathBuf, Vec<FileUser>)>, Error> {
    // A clone of a single mount has no mounts on it, so the files below an overlay are reached.
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
    let found = match that_stay(&below)? {
        None => first_written(&below)?.map(|path| (path, Vec::new())),
        found => found,
    };
    Ok(found.map(|(path, users)| {
        let at = below.iter().position(|one| *one == path);
        (at.map_or(path, |at| places[at].path()), users)
    }))
}

/// Waits until no file at or below `paths` is open for writing, at most as long as a verb waits.
/// Then returns the first path with such a file. This also finds writers that /proc does not show,
/// such as a container with the same volume.
fn first_written(paths: &[PathBuf]) -> Result<Option<PathBuf>, Error> {
    for path in paths {
        if !eventually(|| is_written(path).map(|is_written| !is_written))? {
            return Ok(Some(path.clone()));
        }
    }
    Ok(None)
}

/// Whether a regular file at or below `path` is open for writing. A file without leases is not.
fn is_written(path: &Path) -> Result<bool, Error> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let is_open = |path: &PathBuf| {
        let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
        let opened = is_file.then(|| rustix::fs::open(path, flags, Mode::empty()).ok()).flatten();
        opened.is_some_and(|file| is_open_for_writing(file).unwrap_or(false))
    };
    Ok(all_below(path)?.iter().any(is_open))
}

/// Returns the device and inode numbers of `path` and of everything below it.
fn identities(path: &Path) -> Result<HashSet<(u64, u64)>, Error> {
    Ok(all_below(path)?.iter().filter_map(|path| open_files::identity(path)).collect())
}

/// Returns `path` and everything below it, except for links.
fn all_below(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = vec![path.to_owned()];
    let mut directories = Vec::from_iter(path.is_dir().then(|| path.to_owned()));
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            // The daemon may remove the directory meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.on("cannot read", &directory)?,
        };
        for entry in entries {
            let entry = entry.on("cannot read", &directory)?;
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if !is_link {
                found.push(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            }
        }
    }
    Ok(found)
}
