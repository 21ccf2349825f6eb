//! Makes an older generation the newest.

use crate::guard::{self, refuse};
use crate::record::{TreeName, TreeRecord};
use crate::source;
use crate::store::Store;
use crate::unneeded;
use std::io;
use synconce_durable::error::Error;

/// Makes the content of the generation `name` the next generation of its tree, in one durable
/// step. Makes no generation if the newest one has the same content.
///
/// # Errors
/// `ENOENT`; `name` is a tree; the tree has uncommitted changes or is in use.
pub fn restore(store: &Store, name: &TreeName) -> Result<TreeRecord, Error> {
    let _lock = store.lock()?;
    if store.record(name)?.is_some() {
        let why = io::Error::other("it is a tree; a generation is named as in TREE@2");
        return Err(refuse("cannot restore", name, why));
    }
    let (before, generation) = source::generation(store, name)?;
    source::is_idle(store, &before.name)?;
    guard::is_committed(store, "cannot restore a generation of", &before)?;
    let mut record = before.clone();
    record.add_generation(generation.layers.clone(), generation.choice());
    if record == before {
        store.sync_records()?;
    } else {
        store.write_restored(&record)?;
        unneeded::try_drop_unreferenced(store, &before.layer_ids());
    }
    Ok(record)
}
