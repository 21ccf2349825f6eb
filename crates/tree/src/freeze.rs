//! Freezes a session's copy: it becomes a layer, which nothing writes to any more.

use crate::busy::User;
use crate::layer::{self, Links};
use crate::overlay;
use crate::record::{Content, Layer};
use crate::session::{Session, UPPER, WORK, is_busy};
use crate::store::{CONTENT, Store, open_directory};
use crate::strategy::Strategy;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_fs::{Progress, RemoveOptions};

/// A session whose copy is a layer, or that has changed nothing. The layer is not durable.
#[derive(Debug)]
pub struct Frozen {
    /// The stack with the new layer, bottom first.
    pub(crate) layers: Vec<Layer>,
}

impl<'a> Session<'a> {
    /// Freezes the copy, which must be unmounted.
    ///
    /// # Errors
    /// The error names the act and the path. The session has then ended, unless it is mounted
    /// at a path of the user's.
    pub fn freeze(self, progress: &dyn Progress) -> Result<Session<'a, Frozen>, Error> {
        match self.stack_with_copy(progress) {
            Ok(layers) => Ok(self.into_state(Frozen { layers })),
            Err(error) => self.fail(error),
        }
    }

    /// Makes the copy a layer, and returns the stack with the new layer.
    fn stack_with_copy(&self, progress: &dyn Progress) -> Result<Vec<Layer>, Error> {
        if self.is_unchanged()? {
            return Ok(self.note.layers.clone());
        }
        let (content, kind) = self.content();
        let mut layers = Vec::new();
        if self.note.strategy == Strategy::Overlay {
            self.settle()?;
            self.remove_work(progress)?;
            layers.clone_from(&self.note.layers);
        }
        layers.push(move_to_layers(self.store, &self.id, &content, kind)?);
        Ok(layers)
    }

    /// Returns whether nothing was written.
    fn is_unchanged(&self) -> Result<bool, Error> {
        if self.note.strategy != Strategy::Overlay {
            return Ok(false);
        }
        let (upper, _) = self.content();
        if self.store.content(&self.id).exists() {
            return Ok(false);
        }
        if fs::read_dir(&upper).on("cannot read", &upper)?.next().is_some() {
            return Ok(false);
        }
        let Some(top) = self.note.layers.last() else { return Ok(false) };
        let below = open_directory(&self.store.content(&top.id))?;
        overlay::is_same_root(open_directory(&upper)?.as_fd(), below.as_fd())
    }

    /// Completes the upper directory with what the kernel keeps in the index, by mounting the
    /// overlay once more, detached. The kernel refuses this while the upper is in use
    /// elsewhere (`EBUSY`, with an index).
    fn settle(&self) -> Result<(), Error> {
        let directory = self.directory();
        if !directory.join(WORK).exists() {
            // An earlier, interrupted attempt has removed the work directory already.
            return Ok(());
        }
        let upper_path = directory.join(UPPER);
        let upper = open_directory(&upper_path)?;
        let work = open_directory(&directory.join(WORK))?;
        overlay::clear_guard(work.as_fd())?;
        let mount = self.mount().map_err(|error| match is_busy(&error) {
            true => self.busy("cannot freeze", &directory, User::Elsewhere(upper_path.clone())),
            false => error,
        })?;
        if overlay::has_index(work.as_fd())? {
            overlay::freeze(mount.as_fd(), upper.as_fd(), work.as_fd())?;
        }
        Ok(())
    }

    /// Removes overlay's work directory. Its index has one hard link to each indexed file;
    /// without the index, the files' numbers of links are right.
    fn remove_work(&self, progress: &dyn Progress) -> Result<(), Error> {
        let directory = open_directory(&self.directory())?;
        let options = RemoveOptions { threads: 1 };
        let removed = synconce_fs::remove(directory.as_fd(), OsStr::new(WORK), &options, progress)?;
        removed.left.into_iter().next().map_or(Ok(()), Err)
    }
}

impl Session<'_, Frozen> {
    /// Takes the fingerprint of each layer of the stack that has none yet.
    pub(crate) fn fingerprint(&self, progress: &dyn Progress) -> Result<(), Error> {
        // Clones by hard links share their files' links with other layers.
        let links = match self.note.strategy {
            Strategy::Hardlinks => Links::Shared,
            _ => Links::Own,
        };
        layer::fingerprint_all(self.store, &self.state.layers, links, progress)
    }
}

/// Makes a layer of the directory `content`, which nothing writes to any more. The layer
/// exists when this function returns, but is not durable.
fn move_to_layers(store: &Store, id: &str, content: &Path, kind: Content) -> Result<Layer, Error> {
    let directory = store.layer(id);
    let frozen = directory.join(CONTENT);
    // An earlier, interrupted attempt may have moved the content already.
    if !frozen.exists() {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&directory).on("cannot create", &directory)?;
        fs::rename(content, &frozen).on("cannot move", content)?;
    }
    Ok(Layer { id: id.to_owned(), content: kind })
}
