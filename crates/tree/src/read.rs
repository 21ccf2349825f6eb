//! Reads trees: the layers stay in the store until the reader has ended.
//!
//! A reader has a shared lock on the directory of each layer. The lock needs no space on the
//! disk, works on a store that is mounted read-only, and ends with the process. A command that
//! removes or replaces the tree meanwhile leaves the layer in place and marks it; the last
//! reader then moves the layer to the trash, or `gc` does if the reader was killed.

use crate::record::{Layer, TreeName};
use crate::source::{self, LayerStack};
use crate::store::{Store, open_directory};
use crate::{unneeded, view};
use rustix::fs::{FlockOperation, flock};
use std::fmt;
use std::os::fd::OwnedFd;
use synconce_durable::error::{Context, Error};

/// The stack of a tree at one moment. Its layers stay in the store until this value is
/// dropped.
pub struct Reading<'a> {
    store: &'a Store,
    source: LayerStack,
    /// Layers of older generations.
    older: Vec<Layer>,
    locks: Vec<(String, OwnedFd)>,
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Returns the stack of the tree `name` with uncommitted changes, even if a session works on the
/// tree, or of the generation `name`.
///
/// # Errors
/// `ENOENT`.
pub fn read<'a>(store: &'a Store, name: &TreeName) -> Result<Reading<'a>, Error> {
    let _lock = store.lock_to_read()?;
    read_source(store, source::stack_or_generation(store, name)?)
}

/// Like [`read`], with the layers of older generations that the tree keeps.
///
/// # Errors
/// `ENOENT`.
pub(crate) fn read_all<'a>(store: &'a Store, name: &TreeName) -> Result<Reading<'a>, Error> {
    let _lock = store.lock_to_read()?;
    let kept = store.record(name)?.map(|record| record.kept).unwrap_or_default();
    let older = kept.into_iter().flat_map(|kept| kept.layers).collect();
    read_layers(store, source::stack_or_generation(store, name)?, older)
}

/// Like [`read`], under the store's lock. The lock must be released before the
/// result is dropped.
pub(crate) fn read_source<'a>(store: &'a Store, source: LayerStack) -> Result<Reading<'a>, Error> {
    read_layers(store, source, Vec::new())
}

fn read_layers<'a>(
    store: &'a Store,
    source: LayerStack,
    older: Vec<Layer>,
) -> Result<Reading<'a>, Error> {
    let mut locks: Vec<(String, OwnedFd)> = Vec::new();
    let committed = source.base.iter().flat_map(|base| &base.layers);
    for layer in source.layers.iter().chain(committed).chain(&older) {
        if locks.iter().any(|(id, _)| *id == layer.id) {
            continue;
        }
        // A layer that is missing is an error when its content is opened.
        let Ok(directory) = open_directory(&store.layer(&layer.id)) else { continue };
        flock(&directory, FlockOperation::LockShared).on("cannot lock", &store.layer(&layer.id))?;
        locks.push((layer.id.clone(), directory));
    }
    Ok(Reading { store, source, older, locks })
}

impl Reading<'_> {
    /// Returns the tree and its stack.
    pub(crate) fn source(&self) -> &LayerStack {
        &self.source
    }

    /// Returns the stack of the last commit, bottom first.
    pub(crate) fn committed(&self) -> &[Layer] {
        self.source.base.as_ref().map_or(&[], |base| &base.layers)
    }

    /// Returns the layers of older generations; a layer may occur several times.
    pub(crate) fn older(&self) -> &[Layer] {
        &self.older
    }

    /// Returns the merged content of the last commit.
    pub fn committed_view(&self) -> Result<OwnedFd, Error> {
        view::view(self.store, self.committed())
    }

    /// Returns the merged content of the stack.
    pub fn view(&self) -> Result<OwnedFd, Error> {
        view::view(self.store, &self.source.layers)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut unneeded = Vec::new();
        for (id, directory) in self.locks.drain(..) {
            // The reader unlocks and then looks for the mark. The remover makes the mark and
            // then tries the lock. One of the two removes the layer.
            if flock(&directory, FlockOperation::Unlock).is_ok() && unneeded::is_marked(&directory)
            {
                unneeded.push(id);
            }
        }
        if !unneeded.is_empty()
            && let Ok(_lock) = self.store.lock()
        {
            unneeded::try_drop_unreferenced(self.store, &unneeded);
        }
    }
}
