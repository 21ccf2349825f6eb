//! Layers: working copies that became immutable.

use crate::record::Layer;
use crate::store::{LAYERS, Store, encode, names_in, open_directory, read, write_lightly};
use rustix::fs::Mode;
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_fs::{Fingerprint, FingerprintOptions, Progress};
use synconce_sys::btrfs;

const FINGERPRINT: &str = "fingerprint.json";

/// Takes the fingerprint of each of `layers` that has none yet. A layer that only the note
/// of a run names may have none, because a fingerprint costs one statx(2) per entry.
pub(crate) fn fingerprint_all(
    store: &Store,
    layers: &[Layer],
    progress: &dyn Progress,
) -> Result<(), Error> {
    for layer in layers {
        let path = store.layer(&layer.id).join(FINGERPRINT);
        if !path.exists() {
            let frozen = store.content(&layer.id);
            let content = open_directory(&frozen)?;
            lock_subvolume(content.as_fd(), &frozen)?;
            let options = FingerprintOptions::default();
            let fingerprint = synconce_fs::fingerprint(content.as_fd(), &options, progress)?;
            write_lightly(&path, &encode(&fingerprint, &path)?)?;
        }
    }
    Ok(())
}

/// Returns whether layer `id` has a fingerprint.
pub(crate) fn has_fingerprint(store: &Store, id: &str) -> bool {
    store.layer(id).join(FINGERPRINT).exists()
}

/// Returns the fingerprint that layer `id` got when it was frozen.
///
/// # Errors
/// The error names the act and the path; `ENOENT` when the layer has no fingerprint.
pub(crate) fn fingerprint(store: &Store, id: &str) -> Result<Fingerprint, Error> {
    let path = store.layer(id).join(FINGERPRINT);
    let missing = || Error::new("cannot open", &path, Errno::NOENT);
    read(&path)?.ok_or_else(missing)
}

/// Returns the directories of layer `id` that differ from its fingerprint.
pub(crate) fn altered(
    store: &Store,
    id: &str,
    progress: &dyn Progress,
) -> Result<Vec<PathBuf>, Error> {
    let frozen = fingerprint(store, id)?;
    let content = open_directory(&store.content(id))?;
    // Earlier versions made hard links from one layer to another.
    let ignore_links = frozen.ignores_links;
    let options = FingerprintOptions { ignore_links, ..FingerprintOptions::default() };
    let now = synconce_fs::fingerprint(content.as_fd(), &options, progress)?;
    let altered = synconce_fs::compare_fingerprints(&frozen, &now);
    Ok(altered.into_iter().map(|path| OsString::from_vec(path).into()).collect())
}

/// Returns the ids of all layers.
pub(crate) fn layers(store: &Store) -> Result<Vec<String>, Error> {
    names_in(&store.path().join(LAYERS))
}

/// Makes a subvolume read-only. btrfs commits the kernel's transaction for this, so the call
/// is left to the tree's commit.
fn lock_subvolume(content: BorrowedFd<'_>, path: &Path) -> Result<(), Error> {
    if !btrfs::is_subvolume(content).on("cannot look at", path)? {
        return Ok(());
    }
    // An earlier, interrupted commit may have made the subvolume read-only already.
    if btrfs::is_read_only(content).on("cannot look at", path)? {
        return Ok(());
    }
    // The rename changed the root's ctime in memory only: btrfs writes the inode of a
    // subvolume's root only when the inode itself is changed.
    let mode = rustix::fs::fstat(content).on("cannot look at", path)?.st_mode;
    let same = Mode::from_raw_mode(mode & 0o7777);
    rustix::fs::fchmod(content, same).on("cannot freeze", path)?;
    btrfs::set_read_only(content, true).on("cannot freeze", path)
}
