//! Lists the trees of a store.

use crate::record::{Layer, Record};
use crate::store::{Opened, Store};
use crate::{layer, source};
use std::collections::HashMap;
use synconce_durable::error::Error;
use synconce_sys::reason;

/// A tree with its size and its use.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The tree's record.
    pub record: Record,
    /// Bytes on the disk in layers that no other tree uses. None if a layer has no fingerprint
    /// yet: a whole copy that is not committed.
    pub own: Option<u64>,
    /// Bytes on the disk in layers that other trees use as well.
    pub shared: Option<u64>,
    /// Whether the tree has uncommitted changes.
    pub is_open: bool,
    /// What uses the tree, as text.
    pub used: Option<String>,
}

/// Returns every tree with its sizes, and the errors of records that cannot be read.
///
/// # Errors
/// The store cannot be read.
pub fn list(store: &Store) -> Result<(Vec<Listed>, Vec<Error>), Error> {
    let lock = store.lock_to_read()?;
    let (records, broken) = store.records()?;
    let mut stacks = Vec::new();
    for record in &records {
        let opened = store.opened(record)?;
        let is_open = matches!(opened, Opened::Yes(_));
        let layers = match opened {
            Opened::Yes(layers) => layers,
            Opened::No | Opened::Lost | Opened::Stale => record.layers.clone(),
        };
        let used = source::is_idle(store, &record.name).err().map(|error| reason(error.io()));
        stacks.push((layers, is_open, used));
    }
    drop(lock);
    let mut users: HashMap<&str, u32> = HashMap::new();
    for layer in stacks.iter().flat_map(|(layers, ..)| layers) {
        *users.entry(&layer.id).or_default() += 1;
    }
    let mut sizes = HashMap::new();
    for id in users.keys() {
        sizes.insert(*id, layer::fingerprint(store, id).ok().map(|fingerprint| fingerprint.bytes));
    }
    let sum = |layers: &[Layer], shared: bool| -> Option<u64> {
        let wanted = layers.iter().filter(|layer| (users[layer.id.as_str()] > 1) == shared);
        wanted.map(|layer| sizes[layer.id.as_str()]).sum()
    };
    let listed = records.into_iter().zip(&stacks);
    let listed = listed.map(|(record, (layers, is_open, used))| Listed {
        own: sum(layers, false),
        shared: sum(layers, true),
        is_open: *is_open,
        used: used.clone(),
        record,
    });
    Ok((listed.collect(), broken))
}
