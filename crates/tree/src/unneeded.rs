//! Layers that nothing needs: what refers to a layer, and its way to the trash.

use crate::record::Layer;
use crate::store::{Opened, Store, open_directory, try_lock};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_durable::mutant;
use synconce_probe::mounts::{self, Mount};
use synconce_probe::namespaces;

/// A mark in the directory of a layer: the layer is to be removed when its last reader has
/// ended.
const UNNEEDED: &str = "unneeded";

/// Moves the layers of `candidates` that nothing refers to, no mount shows and no process reads to
/// the trash. Returns their number.
pub(crate) fn drop_unreferenced(store: &Store, candidates: &[String]) -> Result<u64, Error> {
    drop_layers(store, &unreferenced(store, candidates.to_vec())?.free)
}

/// Moves those of `layers` that no process reads to the trash. Returns their number.
pub(crate) fn drop_layers(store: &Store, layers: &[String]) -> Result<u64, Error> {
    let mut dropped = 0;
    for id in layers {
        let layer = store.layer(id);
        if let Some(_lock) = take_from_readers(&layer)? {
            dropped += u64::from(store.discard(&layer)?);
        }
    }
    Ok(dropped)
}

/// Layers that no record and no session needs.
#[derive(Debug, Default)]
pub(crate) struct Unreferenced {
    /// The ids of the layers that no mount shows.
    pub(crate) free: Vec<String>,
    /// A mount of each of the other layers.
    pub(crate) mounted: Vec<LayerMount>,
}

/// A mount of a layer that `tree umount` has not ended: a copy that another mount namespace got
/// before, or a bind mount.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LayerMount {
    /// A process in the mount namespace; `None` for the mount namespace of this process.
    pub pid: Option<u32>,
    /// The mount point there.
    pub point: PathBuf,
}

/// Returns the layers of `candidates` that nothing refers to. If records and sessions refer to all
/// of them, the mounts of processes are not read.
pub(crate) fn unreferenced(
    store: &Store,
    mut candidates: Vec<String>,
) -> Result<Unreferenced, Error> {
    let referenced = referenced(store)?;
    candidates.retain(|id| !referenced.contains(id) && store.layer(id).exists());
    if candidates.is_empty() {
        return Ok(Unreferenced::default());
    }
    let mut namespaces = vec![(None, mounts::read("self").unwrap_or_default())];
    let others = namespaces::others().into_iter();
    namespaces.extend(others.map(|namespace| (Some(namespace.pid), namespace.mounts)));
    let mount_of = |id: &str| {
        namespaces.iter().find_map(|(pid, mounts)| {
            let mount = mounts.iter().find(|mount| shows_part_of(mount, id))?;
            Some(LayerMount { pid: *pid, point: mount.point.clone() })
        })
    };
    let mut found = Unreferenced::default();
    for id in candidates {
        match mount_of(&id) {
            Some(mount) => found.mounted.push(mount),
            None => found.free.push(id),
        }
    }
    found.mounted.sort();
    found.mounted.dedup();
    Ok(found)
}

/// Returns whether `mount` shows something of the layer or session `id`: an overlay over its
/// directory, or a bind mount of the directory or of a part. An id is a random number.
pub(crate) fn shows_part_of(mount: &Mount, id: &str) -> bool {
    mount.root.iter().any(|name| name == id) || mount.options.contains(&format!("/{id}/"))
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
