//! Protects a tree from changes by runs and mounts, and ends the protection.

use crate::record::{TreeName, TreeRecord};
use crate::store::Store;
use crate::{guard, source};
use synconce_durable::error::Error;

/// Protects the tree `name`: no run or mount leaves changes in the tree. Only
/// [`commit_as`](crate::Session::commit_as) makes its next generation.
///
/// # Errors
/// `ENOENT`; the tree has uncommitted changes or is in use.
pub fn protect(store: &Store, name: &TreeName) -> Result<(), Error> {
    let _lock = store.lock()?;
    let record = source::existing(store, name)?;
    // A run in progress would leave changes in a protected tree.
    source::is_idle(store, name)?;
    guard::is_committed(store, "cannot protect", &record)?;
    if record.protected {
        return store.sync_records();
    }
    store.write_protection(&TreeRecord { protected: true, ..record })
}

/// Ends the protection of the tree `name`.
///
/// # Errors
/// `ENOENT`.
pub fn unprotect(store: &Store, name: &TreeName) -> Result<(), Error> {
    let _lock = store.lock()?;
    let record = source::existing(store, name)?;
    if !record.protected {
        return store.sync_records();
    }
    store.write_protection(&TreeRecord { protected: false, ..record })
}
