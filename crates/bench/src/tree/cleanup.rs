//! Removes what would block the removal of a work directory.

use crate::Error;
use crate::mount::Mount;
use crate::mounts::remove_tree;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// Whether a directory is on a file system that has subvolumes.
pub(super) fn is_btrfs(path: &Path) -> bool {
    Mount::of(path).is_some_and(|mount| mount.kind == "btrfs")
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
        for path in list(&dir).chain([dir.clone()]).filter(|path| is_subvolume(path)) {
            let mut command = Command::new("btrfs");
            command.args(["property", "set", "-f", "-ts"]).arg(&path).args(["ro", "false"]);
            // The next removal reports why it fails.
            let _ = command.output();
        }
    }
}

/// Whether the directory is a subvolume's root, which always has this inode number.
fn is_subvolume(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir() && metadata.ino() == 256)
}

/// Removes the entries of a directory.
pub(super) fn empty(dir: &Path) -> Result<(), Error> {
    match fs::read_dir(dir) {
        Err(_) => Ok(()),
        Ok(mut entries) => entries
            .try_for_each(|entry| remove_tree(&entry.map_err(Error::io("list", dir))?.path())),
    }
}
