//! Layers that nothing needs: what refers to a layer, and its way to the trash.

use crate::record::Layer;
use crate::store::{Opened, Store, open_directory, try_lock};
use crate::trash;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use synconce_durable::error::Error;
use synconce_durable::mutant;

/// A mark in the directory of a layer: the layer is to be removed when its last reader has
/// ended.
const UNNEEDED: &str = "unneeded";

/// Moves the layers of `candidates` that nothing refers to and no process reads to the
/// trash. Returns their number.
pub(crate) fn drop_unreferenced(store: &Store, candidates: &[String]) -> Result<u64, Error> {
    let mut dropped = 0;
    for id in unreferenced(store, candidates.to_vec())? {
        let layer = store.layer(&id);
        if let Some(_lock) = take_from_readers(&layer)? {
            dropped += u64::from(trash::discard(store, &layer)?);
        }
    }
    Ok(dropped)
}

/// Returns those of `candidates` that nothing refers to.
pub(crate) fn unreferenced(store: &Store, candidates: Vec<String>) -> Result<Vec<String>, Error> {
    let referenced = referenced(store)?;
    Ok(candidates.into_iter().filter(|id| !referenced.contains(id)).collect())
}

/// Best effort: moves the unreferenced layers among `candidates` to the trash.
pub(crate) fn try_drop_unreferenced(store: &Store, candidates: &[String]) {
    let _ = drop_unreferenced(store, candidates);
}

/// Returns the ids of all layers that a tree, its uncommitted changes or a session needs.
///
/// # Errors
/// Also when a record cannot be read: the layers that the record needs are then unknown.
fn referenced(store: &Store) -> Result<HashSet<String>, Error> {
    let (records, broken) = store.records()?;
    if let Some(error) = broken.into_iter().next() {
        return Err(error);
    }
    let mut referenced = HashSet::new();
    let add = |referenced: &mut HashSet<String>, layers: &[Layer]| {
        referenced.extend(layers.iter().map(|layer| layer.id.clone()));
    };
    for record in &records {
        referenced.extend(record.layer_ids());
        if let Opened::Yes(layers) = store.opened(record)? {
            add(&mut referenced, &layers);
        }
    }
    for (id, session) in store.sessions()? {
        if session.is_none()
            && let Some(error) = store.unknown_needs(&id)
        {
            return Err(error);
        }
        add(&mut referenced, &session.map(|session| session.layers).unwrap_or_default());
        // The layer that the session becomes has the session's id.
        referenced.insert(id);
    }
    Ok(referenced)
}

/// Locks the layer in `path` against readers, under the store's lock, so that no new
/// reader can start. Returns `None` if there are readers; the last reader removes the
/// layer.
fn take_from_readers(path: &Path) -> Result<Option<OwnedFd>, Error> {
    let directory = match open_directory(path) {
        Err(error) if error.io().kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if try_lock(&directory, path)? || mutant::is("tree-readers-ignored") {
        return Ok(Some(directory));
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // If the mark cannot be made, on a full disk, `gc` finds the layer.
    let _ = rustix::fs::openat(&directory, UNNEEDED, flags, Mode::RUSR | Mode::WUSR);
    // A reader that ended before the mark was made did not see it.
    Ok(try_lock(&directory, path)?.then_some(directory))
}

/// Returns whether the layer in `directory` is to be removed by its last reader.
pub(crate) fn is_marked(directory: &OwnedFd) -> bool {
    rustix::fs::statat(directory, UNNEEDED, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}
