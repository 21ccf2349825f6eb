//! Freezes a session's copy: it becomes a layer, which nothing writes to any more.

use crate::busy::TreeUser;
use crate::layer;
use crate::overlay;
use crate::record::{Layer, LayerContent};
use crate::session::{Session, UPPER, WORK, is_busy};
use crate::store::{CONTENT, Store, open_directory};
use crate::strategy::Strategy;
use crate::view;
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_fs::Progress;
use synconce_sys::overlay::place_of;

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
        self.release_reserve();
        // If this cannot be found out, as at a limit of open files, the changes are kept.
        if self.is_unchanged().unwrap_or(false) {
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
        let mut below: Vec<OwnedFd> = Vec::new();
        for UpperDirectory { opened, parent, name } in directories {
            let same = match below.get(parent) {
                Some(above) => open_directory_in(above, &name),
                None => Ok(view::view(self.store, &self.note.layers)?),
            };
            let same = match same {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
                same => same.on("cannot open", &place_of(opened.as_fd()))?,
            };
            if !overlay::is_same_directory(opened.as_fd(), same.as_fd())? {
                return Ok(false);
            }
            below.push(same);
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

/// A directory of an upper directory, or the upper directory itself.
struct UpperDirectory {
    opened: OwnedFd,
    /// The index of the directory above; the upper directory's own index.
    parent: usize,
    name: OsString,
}

/// Returns the directories in `upper`, itself included, each before those in it. Returns `None` if
/// there is anything else, or if there are more directories than [`MOST_COMPARED`]. Their paths may
/// be longer than a system call accepts.
fn only_directories(upper: &Path) -> Result<Option<Vec<UpperDirectory>>, Error> {
    let (opened, name) = (open_directory(upper)?, OsString::new());
    let mut found = vec![UpperDirectory { opened, parent: 0, name }];
    let mut next = 0;
    while let Some(UpperDirectory { opened: directory, .. }) = found.get(next) {
        let path = place_of(directory.as_fd());
        let mut inner = Vec::new();
        for entry in Dir::read_from(directory).on("cannot read", &path)? {
            let entry = entry.on("cannot read", &path)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if found.len() + inner.len() == MOST_COMPARED {
                return Ok(None);
            }
            match open_directory_in(directory, name) {
                Ok(opened) => {
                    inner.push(UpperDirectory { opened, parent: next, name: name.to_owned() });
                }
                Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(errno) => return Err(Error::new("cannot open", &path.join(name), errno)),
            }
        }
        found.append(&mut inner);
        next += 1;
    }
    Ok(Some(found))
}

fn open_directory_in(directory: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
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
