//! Removes what nothing in a store refers to.

use crate::recover::{Interrupted, Recovered, interrupted, recover};
use crate::store::{OPEN, Store, TRASH, TREES, names_in};
use crate::unneeded::LayerMount;
use crate::{layer, unneeded};
use std::fs;
use std::path::PathBuf;
use synconce_durable::error::{Context, Error};

/// What [`gc`] has removed and kept.
#[derive(Debug)]
pub struct Collected {
    /// What was recovered.
    pub recovered: Recovered,
    /// The number of removed layers.
    pub layers: u64,
    /// Mounts of layers that are kept, although nothing refers to them.
    pub mounted: Vec<LayerMount>,
    /// The paths of what is among the layers, is no layer, and is kept.
    pub strays: Vec<PathBuf>,
}

/// Removes interrupted sessions and layers that nothing refers to and no mount shows. The trash is
/// not emptied.
///
/// # Errors
/// If a record cannot be read, no layer is removed.
pub fn gc(store: &Store) -> Result<Collected, Error> {
    let recovered = recover(store)?;
    let _lock = store.lock()?;
    sweep_unfinished(store)?;
    let (layers, strays) = layer::layers(store)?;
    let unreferenced = unneeded::unreferenced(store, layers)?;
    let layers = unneeded::drop_layers(store, &unreferenced.free)?;
    Ok(Collected { recovered, layers, mounted: unreferenced.mounted, strays })
}

/// What a store has that nothing needs.
#[derive(Clone, Debug)]
pub struct Garbage {
    /// Sessions that were interrupted.
    pub interrupted: Vec<Interrupted>,
    /// The ids of layers that nothing refers to and no mount shows.
    pub layers: Vec<String>,
    /// The number of entries of the trash; an entry may be a whole tree.
    pub trash: usize,
}

/// Returns what [`gc`] and the emptying of the trash would remove; changes nothing.
pub fn garbage(store: &Store) -> Result<Garbage, Error> {
    let _lock = store.lock_to_read()?;
    Ok(Garbage {
        interrupted: interrupted(store)?,
        layers: unneeded::unreferenced(store, layer::layers(store)?.0)?.free,
        trash: names_in(&store.path().join(TRASH))?.len(),
    })
}

/// Removes temporary files of records whose write was interrupted by a crash.
fn sweep_unfinished(store: &Store) -> Result<(), Error> {
    for directory in [TREES, OPEN].map(|name| store.path().join(name)) {
        for entry in fs::read_dir(&directory).on("cannot read", &directory)? {
            let entry = entry.on("cannot read", &directory)?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                fs::remove_file(entry.path()).on("cannot remove", &entry.path())?;
            }
        }
    }
    Ok(())
}
