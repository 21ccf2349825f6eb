//! Removes trees.

use crate::guard::{self, refuse};
use crate::record::{Generation, TreeName, TreeRecord};
use crate::store::{Opened, Store};
use crate::{source, unneeded};
use std::io;
use synconce_durable::error::Error;

/// What a removal does with uncommitted changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// They prevent the removal.
    Kept,
    /// They are removed with the tree.
    Dropped,
}

/// Removes the tree `name`, or the older generation `name`, and moves layers that nothing else
/// uses to the trash.
///
/// # Errors
/// `ENOENT`; `name` is the newest generation of its tree; the tree is in use; the tree has
/// uncommitted changes, or its record cannot be read, and `changes` says that changes are kept.
pub fn remove(store: &Store, name: &TreeName, changes: Changes) -> Result<(), Error> {
    let _lock = store.lock()?;
    let mut layers: Vec<String> = Vec::new();
    let record = match (store.record(name), changes) {
        (Ok(None), _) => return remove_generation(store, name),
        (Ok(record), _) => record,
        // `gc` finds its layers.
        (Err(_), Changes::Dropped) => None,
        (Err(_), Changes::Kept) => return Err(guard::unreadable(store, name)),
    };
    source::is_idle(store, name)?;
    if let Some(record) = &record {
        if changes == Changes::Kept {
            guard::is_committed(store, "cannot remove", record)?;
        }
        layers.extend(record.layer_ids());
        if let Opened::Yes(open) = store.opened(record)? {
            layers.extend(open.into_iter().map(|layer| layer.id));
        }
    }
    store.forget(name)?;
    layers.sort_unstable();
    layers.dedup();
    unneeded::try_drop_unreferenced(store, &layers);
    Ok(())
}

/// Returns the older generation `name`, and the record of its tree.
///
/// # Errors
/// `ENOENT`; `name` is the newest generation.
pub(crate) fn removable(store: &Store, name: &TreeName) -> Result<(TreeRecord, Generation), Error> {
    let (record, generation) = source::generation(store, name)?;
    if generation.generation == record.generation {
        let why = io::Error::other(format!("it is the newest generation of {}", record.name));
        Err(refuse("cannot remove", name, why))
    } else {
        Ok((record, generation))
    }
}

/// Removes a generation under the store's lock. What began from it has a lease on its layers.
fn remove_generation(store: &Store, name: &TreeName) -> Result<(), Error> {
    let (before, generation) = removable(store, name)?;
    let mut record = before.clone();
    record.kept.retain(|kept| kept.generation != generation.generation);
    store.write_without_generation(&record, &before)?;
    unneeded::try_drop_unreferenced(store, &before.layer_ids());
    Ok(())
}
