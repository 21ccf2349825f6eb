//! Makes clones of trees.

use crate::choose;
use crate::guard::refuse;
use crate::record::{BadName, Parent, TreeName, TreeRecord};
use crate::source;
use crate::store::{self, Store};
use crate::strategy::Strategy;
use std::io;
use synconce_durable::error::Error;

/// The longest part of the base's name that a clone's generated name keeps.
const LONGEST_STEM: usize = 100;

/// Makes the tree `name` from the committed tree or generation `base`, without copying anything.
///
/// # Errors
/// `ENOENT`, `EEXIST`.
pub fn clone(
    store: &Store,
    base: &TreeName,
    name: &TreeName,
    wanted: Option<Strategy>,
) -> Result<TreeRecord, Error> {
    let _lock = store.lock()?;
    let source = source::committed(store, base)?;
    source::is_new(store, "cannot clone to", name)?;
    let choice = match wanted {
        Some(_) => choose(store, &source.layers, wanted)?,
        // The layers are the base's, so the base's strategy works for the clone.
        None => source::choice(store, base)?,
    };
    let parent = source.base.map(Parent::from);
    let record = TreeRecord::first(name.clone(), source.layers, choice, parent);
    store.write(&record)?;
    Ok(record)
}

/// Returns a free name for a clone of `base`.
pub fn new_name(base: &TreeName) -> Result<TreeName, Error> {
    let id = store::new_id()?;
    let stem: String = base.as_str().chars().take(LONGEST_STEM).collect();
    let name = format!("{stem}-{}", &id[..8]);
    name.parse()
        .map_err(|error: BadName| refuse("cannot name a clone of", base, io::Error::other(error)))
}
