//! Removes trees.

use crate::record::Name;
use crate::store::{Opened, Store};
use crate::{guard, source, unneeded};
use synconce_durable::error::Error;

/// What a removal does with uncommitted changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// They prevent the removal.
    Kept,
    /// They are removed with the tree.
    Dropped,
}

/// Removes the tree `name`, and moves layers that no other tree uses to the trash.
///
/// # Errors
/// `ENOENT`; the tree is in use; changes are to be kept, and the tree has uncommitted ones, or its
/// record cannot be read. The error names the act and the path.
pub fn remove(store: &Store, name: &Name, changes: Changes) -> Result<(), Error> {
    let _lock = store.lock()?;
    let mut layers: Vec<String> = Vec::new();
    let record = match (store.record(name), changes) {
        (Ok(record), _) => Some(record.ok_or_else(|| source::absent(name))?),
        // `gc` finds its layers.
        (Err(_), Changes::Dropped) => None,
        (Err(_), Changes::Kept) => return Err(guard::unreadable(store, name)),
    };
    source::is_idle(store, name)?;
    if let Some(record) = &record {
        if changes == Changes::Kept {
            guard::is_committed(store, "cannot remove", record)?;
        }
        layers.extend(record.layers.iter().map(|layer| layer.id.clone()));
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
