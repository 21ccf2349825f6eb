//! The marker: the durable record that a run is in flight.
//!
//! It is *armed* before the command starts: an unnamed file with its content, so
//! that a full or read-only disk is found in time, and a command that never syncs
//! pays no flush. It is *engaged* before the first call is held: synced, named,
//! its directory synced, and the names that lead there. It is *cleared* after the
//! commit. A lock on its public file tells a run in flight from one that was
//! interrupted, in any boot, container or pid namespace.
//!
//! The public file is for everyone, so that a user learns of root's interrupted
//! runs; the private file has the command line, in which a password may stand.
//!
//! The command may remove, replace or mount over the directory at any moment. An
//! armed marker is written again where the directory is by then; an engaged one
//! that is gone needs no removal.

mod files;

use self::files::{Armed, Content};
use crate::directories::Directories;
use crate::error::{Context, Error};
use crate::mutant;
use crate::record::{FileSystem, Record, line};
use crate::registry;
pub use files::PRIVATE;
pub(crate) use files::{PUBLIC, Part, Unnamed, open_directory, remove};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The directory of markers below a state directory.
pub const RUNS: &str = "runs";

/// The marker of one run in one state directory.
#[derive(Debug)]
pub struct Marker {
    /// Where the marker is found once it is engaged.
    directory: PathBuf,
    content: Content,
    armed: Armed,
    /// `directory`, open, from the moment at which the marker has its names there.
    named: Option<OwnedFd>,
    engaged: bool,
    directories: Directories,
    /// The root of another system that `directory` is in.
    root: Option<PathBuf>,
    /// Where the state directory gets a pointer before the marker counts.
    registry: Option<PathBuf>,
}

impl Marker {
    /// Arms the marker of `record` below `state`. Nothing is durable yet, but
    /// everything that can be found out without a flush has been.
    ///
    /// With `root`, `state` is in the root of another system. Directories are then
    /// made when the marker is engaged, because some programs that install a system
    /// refuse a root that is not empty, and are removed with the marker.
    ///
    /// # Errors
    /// Names the act and path: a read-only or full file system, missing rights.
    pub fn arm(state: &Path, record: &Record, root: Option<&Path>) -> Result<Self, Error> {
        let directory = state.join(RUNS);
        let content = Content::of(record).map_err(std::io::Error::from);
        let content = content.on("cannot write a marker in", &directory)?;
        let mut directories = Directories::default();
        let armed = again_while_gone(|| {
            if root.is_none() {
                directories.make(&directory)?;
            }
            Armed::new(deepest_there(&directory), &content)
        })?;
        Ok(Self {
            directory,
            content,
            armed,
            named: None,
            engaged: false,
            directories,
            root: root.map(Path::to_owned),
            registry: None,
        })
    }

    /// The same marker, by which root's `status` finds its state directory in `registry`.
    pub fn registered_in(mut self, registry: PathBuf) -> Self {
        self.registry = Some(registry);
        self
    }

    /// Makes the marker durable. Idempotent. A root that the command has removed
    /// gets no marker, because the command is about to make the root itself.
    ///
    /// # Errors
    /// Names the act and path; nothing may be held then.
    pub fn engage(&mut self) -> Result<(), Error> {
        let is_removed = |root: &PathBuf| {
            root.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        if self.engaged || self.root.as_ref().is_some_and(is_removed) {
            return Ok(());
        }
        again_while_gone(|| {
            self.directories.make(&self.directory)?;
            let directory = open_directory(&self.directory)?;
            let engaged = self.engage_in(&directory);
            if engaged.as_ref().is_err_and(|error| is_gone(error) || is_elsewhere(error)) {
                self.armed = Armed::new(&self.directory, &self.content)?;
                return self.engage_in(&directory);
            }
            engaged
        })?;
        if let (Some(registry), Some(state)) = (&self.registry, self.directory.parent()) {
            registry::register(state, registry);
        }
        self.engaged = true;
        Ok(())
    }

    /// Adds `system` to the file systems of the engaged marker, durably: a call on it may be
    /// held then.
    ///
    /// # Errors
    /// Names the act and path.
    pub fn name(&mut self, system: &FileSystem) -> Result<(), Error> {
        let written = &mut self.content.public.text;
        if Record::from_public(written).is_ok_and(|record| record.file_systems.contains(system)) {
            return Ok(());
        }
        let text = line(serde_json::to_vec(system).unwrap_or_default());
        let appended = self.armed.append(written.len() as u64, &text);
        appended.on("cannot write the marker in", &self.directory)?;
        written.extend(text);
        Ok(())
    }

    fn engage_in(&mut self, directory: &OwnedFd) -> Result<(), Error> {
        self.named = Some(directory.try_clone().on("cannot open", &self.directory)?);
        let complete = self.armed.complete(directory, &self.content);
        complete.on("cannot sync a marker in", &self.directory)?;
        let named = self.armed.give_names(directory, &self.content);
        named.on("cannot name a marker in", &self.directory)?;
        self.sync_directories(directory)
    }

    fn sync_directories(&self, handle: &OwnedFd) -> Result<(), Error> {
        if !mutant::is("marker-unsynced") && !mutant::is("marker-directory-unsynced") {
            rustix::fs::fsync(handle).on("cannot sync", &self.directory)?;
        }
        if !mutant::is("marker-unsynced") && !mutant::is("marker-parents-unsynced") {
            self.directories.sync_names(handle.as_fd(), &self.directory)?;
        }
        Ok(())
    }

    /// The path at which an engaged marker is found.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.content.public.name)
    }

    /// The marker's public file, for finding the file system that it is on.
    pub fn file(&self) -> rustix::fd::BorrowedFd<'_> {
        self.armed.file()
    }

    /// Removes the marker durably: the run's data are safe. A marker that is gone
    /// already, because the command emptied or replaced the directory, is cleared.
    ///
    /// # Errors
    /// Names the act and path; the run is then found interrupted, which is the
    /// safe side.
    pub fn clear(mut self) -> Result<(), Error> {
        let Some(directory) = self.named.as_ref().filter(|_| self.engaged) else {
            return Ok(());
        };
        self.remove_from(directory)?;
        rustix::fs::fsync(directory).on("cannot sync", &self.directory)?;
        // A command that copied its root, and put the copy in its place, has copied the marker.
        if self.root.is_some()
            && let Ok(copy) = open_directory(&self.directory)
            && self.remove_from(&copy)?
        {
            rustix::fs::fsync(&copy).on("cannot sync", &self.directory)?;
        }
        (self.named, self.engaged) = (None, false);
        Ok(())
    }

    /// Removes both files; whether one was there.
    fn remove_from(&self, directory: &OwnedFd) -> Result<bool, Error> {
        let mut any = false;
        for name in self.content.names() {
            any |= remove(directory, name).on("cannot remove", &self.directory.join(name))?;
        }
        Ok(any)
    }
}

impl Drop for Marker {
    /// A marker that was never engaged leaves nothing behind; an engaged one stays.
    fn drop(&mut self) {
        if self.engaged {
            return;
        }
        // Nothing was held, so a name that cannot be removed claims too much, not too little.
        if let Some(directory) = &self.named {
            let _ = self.remove_from(directory);
        }
        self.armed.forget(self.named.as_ref());
        if self.root.is_some() {
            self.directories.remove();
        }
    }
}

/// `path` or the nearest name above it that exists.
fn deepest_there(path: &Path) -> &Path {
    let is_there = |above: &&Path| above.symlink_metadata().is_ok();
    path.ancestors().find(is_there).unwrap_or(path)
}

/// Another run that ends may remove the directory at any moment, but only as
/// long as it is empty: whoever was too late makes it again.
fn again_while_gone<T>(mut act: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    // Each time another run has just ended; a path that cannot be had stays an error.
    for _ in 0..32 {
        match act() {
            Err(error) if is_gone(&error) => {}
            other => return other,
        }
    }
    act()
}

fn is_gone(error: &Error) -> bool {
    error.io().kind() == ErrorKind::NotFound
}

/// Whether the directory is on another file system than the armed file, because
/// the command has mounted one, or limits the file to a part of it (project quotas).
fn is_elsewhere(error: &Error) -> bool {
    error.io().kind() == ErrorKind::CrossesDevices
}

/// Whether `name` is the file name of an engaged marker.
pub(crate) fn is_marker(name: &Path) -> bool {
    name.extension().is_some_and(|suffix| suffix == PUBLIC)
        && !name.to_string_lossy().starts_with('.')
}
