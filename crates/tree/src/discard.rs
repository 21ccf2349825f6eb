//! Throws away the uncommitted changes of a tree.

use crate::record::TreeName;
use crate::store::{Opened, Store};
use crate::{source, unneeded};
use synconce_durable::error::Error;
use synconce_durable::mutant;

/// Throws away the uncommitted changes of `name`, which is then at its last commit. Returns
/// whether there were changes.
///
/// # Errors
/// `ENOENT`; the tree is in use.
pub fn discard(store: &Store, name: &TreeName) -> Result<bool, Error> {
    let _lock = store.lock()?;
    let record = source::existing(store, name)?;
    source::is_idle(store, name)?;
    let Opened::Yes(layers) = store.opened(&record)? else {
        return store.sync_notes().map(|()| false);
    };
    // A crash after this step leaves layers that nothing needs; `gc` removes them.
    if mutant::is("tree-discard-unsynced") {
        store.close(name)?;
    } else {
        store.close_durably(name)?;
    }
    let layers: Vec<String> = layers.into_iter().map(|layer| layer.id).collect();
    unneeded::try_drop_unreferenced(store, &layers);
    Ok(true)
}
