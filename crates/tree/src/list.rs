//! Lists the trees of a store.

use crate::record::{Layer, TreeRecord};
use crate::store::{Opened, Store};
use crate::{layer, source};
use std::collections::HashMap;
use synconce_durable::error::Error;
use synconce_sys::reason;

/// A tree with its size and its use.
#[derive(Clone, Debug)]
pub struct ListedTree {
    /// The tree's record.
    pub record: TreeRecord,
    /// Bytes on the disk in layers that no other tree uses. None if the entries of a layer were
    /// not looked at yet: on btrfs, a whole copy that is not committed, or a snapshot that was not
    /// verified.
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
pub fn list(store: &Store) -> Result<(Vec<ListedTree>, Vec<Error>), Error> {
    let lock = store.lock_to_read()?;
    let (records, broken) = store.records()?;
    let mut stacks = Vec::new();
    for record in &records {
        let opened = store.opened(record)?;
        let is_open = matches!(opened, Opened::Yes(_));
        let mut layers = match opened {
            Opened::Yes(layers) => layers,
            Opened::No | Opened::Lost | Opened::Missing(_) | Opened::Stale => record.layers.clone(),
        };
        for layer in record.kept.iter().flat_map(|kept| &kept.layers) {
            if !layers.contains(layer) {
                layers.push(layer.clone());
            }
        }
        let used = source::is_idle(store, &record.name).err().map(|error| reason(error.io()));
        stacks.push((layers, is_open, used));
    }
    drop(lock);
    let sizes = Sizes::read(store, stacks.iter().map(|(layers, ..)| layers));
    let listed = records.into_iter().zip(&stacks);
    let listed = listed.map(|(record, (layers, is_open, used))| ListedTree {
        own: sizes.own(layers),
        shared: sizes.shared(layers),
        is_open: *is_open,
        used: used.clone(),
        record,
    });
    Ok((listed.collect(), broken))
}

/// The sizes of layers, and how many stacks use each layer.
pub(crate) struct Sizes<'a> {
    users: HashMap<&'a str, u32>,
    bytes: HashMap<&'a str, Option<u64>>,
}

impl<'a> Sizes<'a> {
    pub(crate) fn read(store: &Store, stacks: impl IntoIterator<Item = &'a Vec<Layer>>) -> Self {
        let mut users: HashMap<&str, u32> = HashMap::new();
        for layer in stacks.into_iter().flatten() {
            *users.entry(&layer.id).or_default() += 1;
        }
        let bytes = users.keys().map(|id| (*id, layer::bytes(store, id))).collect();
        Self { users, bytes }
    }

    /// Returns the bytes of layers that one stack uses.
    pub(crate) fn own(&self, layers: &[Layer]) -> Option<u64> {
        let own = layers.iter().filter(|layer| self.users[layer.id.as_str()] == 1);
        own.map(|layer| self.bytes[layer.id.as_str()]).sum()
    }

    /// Returns the bytes of layers that several stacks use.
    pub(crate) fn shared(&self, layers: &[Layer]) -> Option<u64> {
        let shared = layers.iter().filter(|layer| self.users[layer.id.as_str()] > 1);
        shared.map(|layer| self.bytes[layer.id.as_str()]).sum()
    }
}
