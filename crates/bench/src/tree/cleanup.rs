//! Removes what would block the removal of a work directory.

use crate::Error;
use crate::mount::MountProperties;
use crate::mounts::remove_tree;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use synconce_sys::btrfs;

/// Whether a directory is on a file system that has subvolumes.
pub(super) fn is_btrfs(path: &Path) -> bool {
    MountProperties::find(path).is_some_and(|mount| mount.kind == "btrfs")
}

/// Makes frozen subvolumes of synconce's store writable; nothing can be removed from a
/// read-only subvolume.
pub(super) fn make_writable(work: &Path) {
    if !is_btrfs(work) {
        return;
    }
    let layers = ["layers", "sessions", "trash"].map(|part| work.join("store").join(part));
    let list = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    for dir in layers.iter().flat_map(|dir| list(dir)) {
        let is_directory = |path: &PathBuf| path.is_dir() && !path.is_symlink();
        for path in list(&dir).chain([dir.clone()]).filter(is_directory) {
            // The next removal reports why it fails.
            let _ = File::open(&path).and_then(|it| btrfs::make_writable(it.as_fd()));
        }
    }
}

/// Removes the entries of a directory.
pub(super) fn empty(dir: &Path) -> Result<(), Error> {
    match fs::read_dir(dir) {
        Err(_) => Ok(()),
        Ok(mut entries) => entries
            .try_for_each(|entry| remove_tree(&entry.map_err(Error::io("list", dir))?.path())),
    }
}
