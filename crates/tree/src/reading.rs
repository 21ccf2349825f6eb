//! Reads trees: the layers stay in the store until the reader has ended.
//!
//! A reader has a shared lock on the directory of each layer. The lock needs no space on the
//! disk, works on a store that is mounted read-only, and ends with the process. A command that
//! removes or replaces the tree meanwhile leaves the layer in place and marks it; the last
//! reader then moves the layer to the trash, or `gc` does if the reader was killed.

use crate::record::{Layer, Name};
use crate::session::Source;
use crate::store::{Store, open_directory};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;

/// A mark in the directory of a layer: the layer is to be removed when its last reader has
/// ended.
const UNNEEDED: &str = "unneeded";

/// The stack of a tree at one moment. Its layers stay in the store until this value is
/// dropped.
pub struct Reading<'a> {
    store: &'a Store,
    source: Source,
    locks: Vec<(String, OwnedFd)>,
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Store {
    /// Returns the stack of `name` with uncommitted changes, even if a session works on the
    /// tree.
    ///
    /// # Errors
    /// `ENOENT`. The error names the act and the path.
    pub fn reading(&self, name: &Name) -> Result<Reading<'_>, Error> {
        let _lock = self.lock_to_read()?;
        self.reading_of(self.stack(name)?)
    }

    /// Like [`Store::reading`], under the store's lock. The lock must be released before the
    /// result is dropped.
    pub(crate) fn reading_of(&self, source: Source) -> Result<Reading<'_>, Error> {
        let mut locks: Vec<(String, OwnedFd)> = Vec::new();
        let committed = source.base.iter().flat_map(|base| &base.layers);
        for layer in source.layers.iter().chain(committed) {
            if locks.iter().any(|(id, _)| *id == layer.id) {
                continue;
            }
            // A layer that is missing is an error when its content is opened.
            let Ok(directory) = open_directory(&self.layer(&layer.id)) else { continue };
            flock(&directory, FlockOperation::LockShared)
                .on("cannot lock", &self.layer(&layer.id))?;
            locks.push((layer.id.clone(), directory));
        }
        Ok(Reading { store: self, source, locks })
    }

    /// Locks the layer in `path` against readers, under the store's lock, so that no new
    /// reader can start. Returns `None` if there are readers; the last reader removes the
    /// layer.
    pub(crate) fn take_from_readers(&self, path: &Path) -> Result<Option<OwnedFd>, Error> {
        let directory = match open_directory(path) {
            Err(error) if error.io().kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if is_free(&directory, path)? || mutant::is("tree-readers-ignored") {
            return Ok(Some(directory));
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // If the mark cannot be made, on a full disk, `gc` finds the layer.
        let _ = rustix::fs::openat(&directory, UNNEEDED, flags, Mode::RUSR | Mode::WUSR);
        // A reader that ended before the mark was made did not see it.
        Ok(is_free(&directory, path)?.then_some(directory))
    }
}

fn is_free(directory: &OwnedFd, path: &Path) -> Result<bool, Error> {
    match flock(directory.as_fd(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(Error::new("cannot lock", path, errno)),
    }
}

impl Reading<'_> {
    /// Returns the tree and its stack.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the stack of the last commit, bottom first.
    pub(crate) fn committed(&self) -> &[Layer] {
        self.source.base.as_ref().map_or(&[], |base| &base.layers)
    }

    /// Returns the merged content of the stack.
    ///
    /// # Errors
    /// The error names the act and the path.
    pub fn view(&self) -> Result<OwnedFd, Error> {
        self.store.view(&self.source.layers)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut unneeded = Vec::new();
        for (id, directory) in self.locks.drain(..) {
            // The reader unlocks and then looks for the mark. The remover makes the mark and
            // then tries the lock. One of the two removes the layer.
            if flock(&directory, FlockOperation::Unlock).is_ok()
                && rustix::fs::statat(&directory, UNNEEDED, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            {
                unneeded.push(id);
            }
        }
        if !unneeded.is_empty()
            && let Ok(_lock) = self.store.lock()
        {
            self.store.try_drop_unreferenced(&unneeded);
        }
    }
}
