//! Gives a tree another name.

use crate::record::TreeName;
use crate::store::Store;
use crate::{guard, source};
use synconce_durable::error::Error;

/// Gives the tree `name` the name `new`, in one durable step.
///
/// # Errors
/// `ENOENT`, `EEXIST`; the tree has uncommitted changes or is in use.
pub fn rename(store: &Store, name: &TreeName, new: &TreeName) -> Result<(), Error> {
    let _lock = store.lock()?;
    let record = source::existing(store, name)?;
    source::is_idle(store, name)?;
    source::is_new(store, "cannot rename to", new)?;
    // The note of the changes has the tree's name, too, and two files cannot be renamed in one
    // step.
    guard::is_committed(store, "cannot rename", &record)?;
    store.rename(name, new)
}
