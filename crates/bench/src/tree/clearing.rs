//! What stands in the way of removing a work directory.

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

/// Makes frozen subvolumes of our store writable, as nothing can be removed from them
/// otherwise.
pub(super) fn thaw(work: &Path) {
    if !is_btrfs(work) {
        return;
    }
    let layers = ["layers", "sessions", "trash"].map(|part| work.join("store").join(part));
    let list = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    for dir in layers.iter().flat_map(|dir| list(dir)) {
        for path in list(&dir).chain([dir.clone()]).filter(|path| is_subvolume(path)) {
            let mut command = Command::new("btrfs");
            command.args(["property", "set", "-f", "-ts"]).arg(&path).args(["ro", "false"]);
            // Whoever removes it next says why it cannot be removed.
            let _ = command.output();
        }
    }
}

/// The root of every subvolume has this inode number.
fn is_subvolume(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir() && metadata.ino() == 256)
}

/// Removes what is in a directory.
pub(super) fn empty(dir: &Path) -> Result<(), Error> {
    match fs::read_dir(dir) {
        Err(_) => Ok(()),
        Ok(mut entries) => entries
            .try_for_each(|entry| remove_tree(&entry.map_err(Error::io("list", dir))?.path())),
    }
}
