//! Freezes a session's copy: it becomes a layer, which nothing writes to any more.

use crate::busy::TreeUser;
use crate::layer;
use crate::overlay;
use crate::record::{Layer, LayerContent};
use crate::session::{Session, UPPER, WORK, is_busy};
use crate::store::{CONTENT, Store, open_directory};
use crate::strategy::Strategy;
use crate::view;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_fs::Progress;

/// The most directories that are compared with those below, to find whether a run has changed
/// nothing.
const MOST_COMPARED: usize = 64;

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
    /// The session has then ended, unless it is mounted at a path of the user's.
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
        // A mount point that was made for the command and removed leaves the directories above.
        let Some(directories) = only_directories(&upper)? else { return Ok(false) };
        let below = view::view(self.store, &self.note.layers)?;
        for directory in directories {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(&below, &directory, flags, Mode::empty()) {
                Ok(below) => {
                    let upper = open_directory(&upper.join(directory))?;
                    if !overlay::is_same_directory(upper.as_fd(), below.as_fd())? {
                        return Ok(false);
                    }
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
                Err(errno) => return Err(Error::new("cannot open", &directory, errno)),
            }
        }
        Ok(true)
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
        let mount = self.mount().map_err(|error| {
            if is_busy(&error) {
                self.busy("cannot freeze", &directory, TreeUser::Elsewhere)
            } else {
                error
            }
        })?;
        overlay::freeze(mount.as_fd(), upper.as_fd(), work.as_fd()).map(drop)
    }

    /// Removes overlay's work directory. Its index has one hard link to each indexed file;
    /// without the index, the files' numbers of links are right.
    fn remove_work(&self, progress: &dyn Progress) -> Result<(), Error> {
        let directory = open_directory(&self.directory())?;
        let removed = synconce_fs::remove(directory.as_fd(), OsStr::new(WORK), 1, progress)?;
        removed.left.into_iter().next().map_or(Ok(()), Err)
    }
}

impl Session<'_, Frozen> {
    /// Takes the fingerprint of each layer of the stack that has none yet.
    pub(crate) fn fingerprint(&self, progress: &dyn Progress) -> Result<(), Error> {
        layer::fingerprint_all(self.store, &self.state.layers, progress)
    }
}

/// Returns the directories in `upper`, itself as `.` included, each before those in it. Returns
/// `None` if there is anything else, or more than [`MOST_COMPARED`] directories.
fn only_directories(upper: &Path) -> Result<Option<Vec<PathBuf>>, Error> {
    let mut found = vec![PathBuf::from(".")];
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        let path = upper.join(&directory);
        for entry in fs::read_dir(&path).on("cannot read", &path)? {
            let entry = entry.on("cannot read", &path)?;
            let is_directory = entry.file_type().on("cannot look at", &entry.path())?.is_dir();
            if !is_directory || found.len() == MOST_COMPARED {
                return Ok(None);
            }
            found.push(directory.join(entry.file_name()));
        }
        next += 1;
    }
    Ok(Some(found))
}

/// Makes a layer of the directory `content`, which nothing writes to any more. The layer
/// exists when this function returns, but is not durable.
fn move_to_layers(
    store: &Store,
    id: &str,
    content: &Path,
    kind: LayerContent,
) -> Result<Layer, Error> {
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
