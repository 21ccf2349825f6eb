//! Layers: working copies that became immutable.

use crate::record::Layer;
use crate::store::{LAYERS, Store, encode, names_in, open_directory, read, write_lightly};
use rustix::fs::Mode;
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::replace;
use synconce_fs::{Fingerprint, FingerprintOptions, Progress};
use synconce_sys::btrfs;

const FINGERPRINT: &str = "fingerprint.json";

/// Whether the files of a layer have hard links in other layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// All hard links are in this layer: the number of links belongs in the fingerprint.
    Own,
    /// Other layers have links to the files; the number of links changes as those layers come
    /// and go.
    Shared,
}

/// Takes the fingerprint of each of `layers` that has none yet. A layer that only the note
/// of a run names may have none, because a fingerprint costs one statx(2) per entry.
pub(crate) fn fingerprint_all(
    store: &Store,
    layers: &[Layer],
    links: Links,
    progress: &dyn Progress,
) -> Result<(), Error> {
    for layer in layers {
        let path = store.layer(&layer.id).join(FINGERPRINT);
        if !path.exists() {
            let frozen = store.content(&layer.id);
            let content = open_directory(&frozen)?;
            lock_subvolume(content.as_fd(), &frozen)?;
            let ignore_links = links == Links::Shared;
            let options = FingerprintOptions { ignore_links, ..FingerprintOptions::default() };
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
    let mut fingerprinted = fingerprint(store, id)?;
    let content = open_directory(&store.content(id))?;
    loop {
        let ignore_links = fingerprinted.ignores_links;
        let options = FingerprintOptions { ignore_links, ..FingerprintOptions::default() };
        let now = synconce_fs::fingerprint(content.as_fd(), &options, progress)?;
        let altered = synconce_fs::compare_fingerprints(&fingerprinted, &now);
        // Before links are made to its files, a layer gets a fingerprint that ignores
        // links.
        let fingerprinted_now = fingerprint(store, id)?;
        if altered.is_empty() || fingerprinted_now.ignores_links == ignore_links {
            return Ok(altered.into_iter().map(|path| OsString::from_vec(path).into()).collect());
        }
        fingerprinted = fingerprinted_now;
    }
}

/// Takes a new fingerprint of layer `id` that ignores links, after checking the layer
/// against the old one. Hard links that clones make to the layer's files then do not count
/// as changes.
pub(crate) fn allow_links(store: &Store, id: &str, progress: &dyn Progress) -> Result<(), Error> {
    let was_fingerprinted = has_fingerprint(store, id);
    if was_fingerprinted {
        if fingerprint(store, id)?.ignores_links {
            return Ok(());
        }
        if let Some(first) = altered(store, id, progress)?.first() {
            let path = store.content(id).join(first);
            let why = io::Error::other("it has changed since it was frozen");
            return Err(Error::new("cannot make links to the files in", &path, why));
        }
    }
    let content = open_directory(&store.content(id))?;
    let options = FingerprintOptions { ignore_links: true, ..FingerprintOptions::default() };
    let fingerprint = synconce_fs::fingerprint(content.as_fd(), &options, progress)?;
    let path = store.layer(id).join(FINGERPRINT);
    let text = encode(&fingerprint, &path)?;
    match was_fingerprinted {
        // The layer may be durable already, and then no later commit would sync the
        // fingerprint.
        true => replace::replace(&path, &text),
        // The layer is not committed; its commit makes the fingerprint durable.
        false => write_lightly(&path, &text),
    }
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
