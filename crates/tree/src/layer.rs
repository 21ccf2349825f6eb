//! Layers: working copies that became immutable.

mod alteration;
mod snapshot;
#[cfg(test)]
mod tests;

pub use self::alteration::Alteration;
use self::snapshot::SnapshotFingerprint;
use crate::pin::{Pin, TO_COMMIT, TO_COMPARE};
use crate::record::{Layer, LayerContent};
use crate::store::{LAYERS, Store, encode, is_id, names_in, open_directory, read, write_lightly};
use rustix::fs::Mode;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::replace::{self, Rights};
use synconce_fs::{Fingerprint, Progress, threads};
use synconce_sys::btrfs;

const FINGERPRINT: &str = "fingerprint.json";
/// A mark in the directory of a layer that is a whole tree: an overlay would take entries of the
/// tree for its own data ([`Fingerprint::overlay_data`]).
const NO_OVERLAY: &str = "no-overlay";
/// The most syncs before btrfs's number of a snapshot is given up.
const MOST_SYNCS: u32 = 4;

/// Syncs the file system of the store.
pub(crate) type Sync<'a> = &'a dyn Fn() -> Result<(), Error>;

/// What `verify` compares a layer with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum LayerFingerprint {
    /// A snapshot that was not verified yet.
    Snapshot(SnapshotFingerprint),
    /// All entries.
    Entries(Fingerprint),
}

impl LayerFingerprint {
    /// Returns whether an overlay would take entries of `layer`, whose fingerprint this is, for its
    /// own data although they are not.
    fn is_against_overlays(&self, layer: &Layer) -> bool {
        layer.content == LayerContent::Whole
            && matches!(self, Self::Entries(entries) if entries.overlay_data > 0)
    }
}

/// Takes the fingerprint of each of `layers` that has none yet. A layer that only the note of a run
/// names may have none, on btrfs: there a fingerprint takes a transaction.
pub(crate) fn fingerprint_all(
    store: &Store,
    layers: &[Layer],
    progress: &dyn Progress,
) -> Result<(), Error> {
    for layer in layers {
        let path = fingerprint_path(store, &layer.id);
        if !path.exists() {
            let fingerprint = take_fingerprint(store, &layer.id, TO_COMMIT, progress)?;
            if fingerprint.is_against_overlays(layer) {
                write_lightly(&store.layer(&layer.id).join(NO_OVERLAY), b"")?;
            }
            write_lightly(&path, &encode(&fingerprint, &path)?)?;
        }
    }
    Ok(())
}

fn take_fingerprint(
    store: &Store,
    id: &str,
    act: &'static str,
    progress: &dyn Progress,
) -> Result<LayerFingerprint, Error> {
    let path = store.content(id);
    let content = open_directory(&path)?;
    lock_subvolume(content.as_fd(), &path)?;
    let read = || SnapshotFingerprint::read(content.as_fd(), &path);
    if let Some(snapshot) = settled(read, || Pin::new(store.path())?.sync(store, act))? {
        return Ok(LayerFingerprint::Snapshot(snapshot));
    }
    let entries = synconce_fs::fingerprint(content.as_fd(), threads(), progress)?;
    Ok(LayerFingerprint::Entries(entries))
}

/// Syncs until `read` returns the same value after two syncs in a row. A sync may return before all
/// of its work is done; the rest then counts as a change in btrfs's next transaction. Returns
/// `None` if there is nothing to read, or if the value still changes after [`MOST_SYNCS`].
fn settled<T: PartialEq>(
    read: impl Fn() -> Result<Option<T>, Error>,
    sync: impl Fn() -> Result<(), Error>,
) -> Result<Option<T>, Error> {
    if read()?.is_none() {
        return Ok(None);
    }
    sync()?;
    let mut before = read()?;
    for _ in 1..MOST_SYNCS {
        sync()?;
        let after = read()?;
        if after == before {
            return Ok(after);
        }
        before = after;
    }
    Ok(None)
}

/// Returns the file with the fingerprint of layer `id`.
pub(crate) fn fingerprint_path(store: &Store, id: &str) -> PathBuf {
    store.layer(id).join(FINGERPRINT)
}

/// Returns whether layer `id` has a fingerprint.
pub(crate) fn has_fingerprint(store: &Store, id: &str) -> bool {
    fingerprint_path(store, id).exists()
}

/// Returns whether an overlay would take entries of the whole tree in layer `id` for its own data.
/// Returns false if the layer has no fingerprint yet.
pub(crate) fn has_overlay_data(store: &Store, id: &str) -> Result<bool, Error> {
    replace::exists(&store.layer(id).join(NO_OVERLAY))
}

/// Returns whether layer `id` is a snapshot with btrfs's number as its fingerprint, which only a
/// sync makes comparable.
pub(crate) fn is_by_number(store: &Store, id: &str) -> bool {
    matches!(frozen_fingerprint(store, id), Ok(LayerFingerprint::Snapshot(_)))
}

/// Returns the bytes that layer `id` takes on the disk, if its entries were looked at.
pub(crate) fn bytes(store: &Store, id: &str) -> Option<u64> {
    match frozen_fingerprint(store, id) {
        Ok(LayerFingerprint::Entries(entries)) => Some(entries.bytes),
        Ok(LayerFingerprint::Snapshot(_)) | Err(_) => None,
    }
}

/// Returns the fingerprint that layer `id` got when it was frozen.
///
/// # Errors
/// The error names the act and the path; `ENOENT` when the layer has no fingerprint.
fn frozen_fingerprint(store: &Store, id: &str) -> Result<LayerFingerprint, Error> {
    let path = fingerprint_path(store, id);
    let missing = || Error::new("cannot open", &path, Errno::NOENT);
    read(&path)?.ok_or_else(missing)
}

/// Returns how layer `id` differs from its fingerprint. The first call for a snapshot needs `sync`.
/// If the snapshot is unchanged, that call replaces its fingerprint by that of all its entries.
pub(crate) fn alteration(
    store: &Store,
    id: &str,
    sync: Sync<'_>,
    progress: &dyn Progress,
) -> Result<Option<Alteration>, Error> {
    let frozen = frozen_fingerprint(store, id)?;
    let path = store.content(id);
    let content = open_directory(&path)?;
    let now = synconce_fs::fingerprint(content.as_fd(), threads(), progress)?;
    match frozen {
        LayerFingerprint::Entries(frozen) => {
            let altered = synconce_fs::compare_fingerprints(&frozen, &now);
            let altered: Vec<_> =
                altered.into_iter().map(|path| OsString::from_vec(path).into()).collect();
            if altered.is_empty() {
                let is_writable = is_writable_subvolume(content.as_fd(), &path)?;
                return Ok(is_writable.then_some(Alteration::Writable));
            }
            Ok(Some(Alteration::Entries(altered)))
        }
        LayerFingerprint::Snapshot(frozen) => {
            // After the entries were looked at: `now` then has no change either.
            let read = || SnapshotFingerprint::read(content.as_fd(), &path);
            settled(read, sync)?;
            let alteration = frozen.alteration(content.as_fd(), &path)?;
            if alteration.is_none() {
                try_replace_fingerprint(store, id, now);
            }
            Ok(alteration)
        }
    }
}

/// Takes the fingerprint of `layer` anew, and keeps it durably. Makes or removes the mark
/// [`NO_OVERLAY`] first: otherwise a crash between both would leave the old mark unnoticed.
pub(crate) fn accept(store: &Store, layer: &Layer, progress: &dyn Progress) -> Result<(), Error> {
    let fingerprint = take_fingerprint(store, &layer.id, TO_COMPARE, progress)?;
    let path = fingerprint_path(store, &layer.id);
    let mark = path.with_file_name(NO_OVERLAY);
    let _lock = store.lock()?;
    if fingerprint.is_against_overlays(layer) {
        replace::write(&mark, b"", Rights { mode: 0o600, ..Rights::common() })?;
    } else {
        replace::remove(&mark)?;
    }
    replace::replace(&path, &encode(&fingerprint, &path)?)
}

/// Best effort: replaces the fingerprint of a snapshot by that of its entries. A store may be
/// read-only; the next call tries again.
fn try_replace_fingerprint(store: &Store, id: &str, entries: Fingerprint) {
    let path = fingerprint_path(store, id);
    if let Ok(_lock) = store.lock()
        && let Ok(text) = encode(&LayerFingerprint::Entries(entries), &path)
    {
        let _ = replace::replace(&path, &text);
    }
}

/// Returns the ids of all layers, and the paths of what is among them and is no layer.
pub(crate) fn layers(store: &Store) -> Result<(Vec<String>, Vec<PathBuf>), Error> {
    let is_layer = |name: &String| {
        is_id(name) && store.layer(name).symlink_metadata().is_ok_and(|it| it.is_dir())
    };
    let names = names_in(&store.path().join(LAYERS))?;
    let (layers, strays): (Vec<_>, Vec<_>) = names.into_iter().partition(is_layer);
    Ok((layers, strays.iter().map(|name| store.layer(name)).collect()))
}

/// Makes a subvolume read-only. btrfs commits the kernel's transaction for this, so the call
/// is left to the tree's commit.
fn lock_subvolume(content: BorrowedFd<'_>, path: &Path) -> Result<(), Error> {
    // An earlier, interrupted commit may have made the subvolume read-only already.
    if !is_writable_subvolume(content, path)? {
        return Ok(());
    }
    // The rename changed the root's ctime in memory only: btrfs writes the inode of a
    // subvolume's root only when the inode itself is changed.
    let mode = rustix::fs::fstat(content).on("cannot look at", path)?.st_mode;
    let same = Mode::from_raw_mode(mode & 0o7777);
    rustix::fs::fchmod(content, same).on("cannot freeze", path)?;
    btrfs::make_read_only(content).on("cannot freeze", path)
}

fn is_writable_subvolume(content: BorrowedFd<'_>, path: &Path) -> Result<bool, Error> {
    let is = btrfs::is_subvolume(content).and_then(|is| Ok(is && !btrfs::is_read_only(content)?));
    is.on("cannot look at", path)
}
