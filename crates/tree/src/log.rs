//! Lists the generations of a tree.

use crate::list::Sizes;
use crate::record::{Generation, TreeName};
use crate::remove::removable;
use crate::source;
use crate::store::{Lock, Opened, Store};
use synconce_durable::error::Error;

/// A generation with its size.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The generation.
    pub generation: Generation,
    /// Bytes on the disk in layers that no other generation and no other tree uses.
    pub own: Option<u64>,
    /// Bytes on the disk in layers that others use as well.
    pub shared: Option<u64>,
}

/// Returns the generations of the tree `name`, the newest first.
///
/// # Errors
/// `ENOENT`.
pub fn log(store: &Store, name: &TreeName) -> Result<Vec<Logged>, Error> {
    let lock = store.lock_to_read()?;
    let generations = source::existing(store, name)?.generations();
    with_sizes(store, lock, generations)
}

/// Returns the generation `name`, which can be removed: it is not the newest.
///
/// # Errors
/// `ENOENT`; it is the newest.
pub fn older_generation(store: &Store, name: &TreeName) -> Result<Logged, Error> {
    let lock = store.lock_to_read()?;
    let (_, generation) = removable(store, name)?;
    let mut logged = with_sizes(store, lock, vec![generation])?;
    Ok(logged.remove(0))
}

fn with_sizes(
    store: &Store,
    lock: Option<Lock>,
    generations: Vec<Generation>,
) -> Result<Vec<Logged>, Error> {
    let (records, _) = store.records()?;
    let mut stacks = Vec::new();
    for record in &records {
        stacks.extend(record.generations().into_iter().map(|generation| generation.layers));
        if let Opened::Yes(layers) = store.opened(record)? {
            stacks.push(layers);
        }
    }
    drop(lock);
    let sizes = Sizes::read(store, &stacks);
    let logged = generations.into_iter().map(|generation| Logged {
        own: sizes.own(&generation.layers),
        shared: sizes.shared(&generation.layers),
        generation,
    });
    Ok(logged.collect())
}
