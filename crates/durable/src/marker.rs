//! The marker: the durable record that a run is in flight.
//!
//! A marker is *armed* before the command starts: its public file is written without a name.
//! This finds a full or read-only disk in time, and costs no flush if the command never syncs.
//! The marker is *engaged* before the first call is held: its private file is written, and both
//! files, their directory and the names that lead there are synced. The marker is *cleared*
//! after the commit. A lock on its files distinguishes a run in flight from an interrupted run,
//! in any boot, container or pid namespace.
//!
//! Everyone may read the public file, so that users see root's interrupted runs. The private
//! file has the command line, which may contain a password.
//!
//! The command may remove, replace or mount over the directory at any moment. If so, `engage`
//! writes an armed marker again, in the directory that it finds. `clear` succeeds for an engaged
//! marker that was removed.

mod files;

use self::files::{Armed, MarkerContent};
use crate::directories::Directories;
use crate::error::{Context, Error};
use crate::file_system;
use crate::in_flight::InFlight;
use crate::in_root;
use crate::mutant;
use crate::record::{FileSystem, RunRecord, line};
use crate::registry;
use crate::standard_paths::{self, STATE_BELOW_ROOT};
use crate::state_file::{PUBLIC, open_directory, remove};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The directory of markers below a state directory.
pub const RUNS: &str = "runs";

/// The marker of one run in one state directory.
#[derive(Debug)]
pub struct Marker {
    /// The directory of the engaged marker.
    directory: PathBuf,
    content: MarkerContent,
    armed: Armed,
    /// `directory`, open, from the moment before the files get their names in it.
    named: Option<InFlight>,
    engaged: bool,
    directories: Directories,
    /// The root of another system, if `directory` is in it.
    root: Option<PathBuf>,
    /// The registry in which the state directory is registered when the marker is engaged.
    registry: Option<PathBuf>,
}

impl Marker {
    /// Arms the marker of `record` below `state`. Nothing is durable yet.
    ///
    /// # Errors
    /// Names the act and path: a read-only or full file system, missing rights.
    pub fn arm(state: &Path, record: &RunRecord) -> Result<Self, Error> {
        Self::arm_in(state.join(RUNS), record, None)
    }

    /// Arms the marker of `record` in `root`, the root of another system, as [`Marker::arm`] does.
    /// No link in `root` leads out of it.
    ///
    /// The directories of the marker are made only when the marker is engaged, because some
    /// programs that install a system refuse a root that is not empty. The directories are removed
    /// with the marker.
    ///
    /// # Errors
    /// Those of [`Marker::arm`]; a link that leads nowhere.
    pub fn arm_in_root(root: &Path, record: &RunRecord) -> Result<Self, Error> {
        Self::arm_in(directory_in(root)?, record, Some(root))
    }

    fn arm_in(directory: PathBuf, record: &RunRecord, root: Option<&Path>) -> Result<Self, Error> {
        let mut record = record.clone();
        if let Some(private) = &mut record.private {
            private.in_root = root.is_some();
        }
        let content = MarkerContent::from_record(&record).map_err(std::io::Error::from);
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

    /// Returns the marker with `registry`: `engage` registers the marker's state directory there,
    /// where root's `status` looks.
    pub fn registered_in(mut self, registry: PathBuf) -> Self {
        self.registry = Some(registry);
        self
    }

    /// Makes the marker durable. Does nothing if the marker is engaged, or if the command has
    /// removed the root: the command is about to make the root itself.
    ///
    /// # Errors
    /// Names the act and path. After an error no call may be held.
    pub fn engage(&mut self) -> Result<(), Error> {
        let is_removed = |root: &PathBuf| {
            root.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        if self.engaged || self.root.as_ref().is_some_and(is_removed) {
            return Ok(());
        }
        again_while_gone(|| {
            if let Some(root) = &self.root {
                // The command may have unpacked links.
                self.directory = directory_in(root)?;
            }
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

    /// Adds `system` to the file systems of the engaged marker, durably. Only then may calls on
    /// `system` be held.
    pub fn name(&mut self, system: &FileSystem) -> Result<(), Error> {
        let written = &mut self.content.public.text;
        if RunRecord::from_public(written).is_ok_and(|record| record.file_systems.contains(system))
        {
            return Ok(());
        }
        let text = line(serde_json::to_vec(system).unwrap_or_default());
        let appended = self.armed.append(written.len() as u64, &text);
        appended.on("cannot write the marker in", &self.directory)?;
        written.extend(text);
        Ok(())
    }

    fn engage_in(&mut self, directory: &OwnedFd) -> Result<(), Error> {
        let named = directory.try_clone().on("cannot open", &self.directory)?;
        self.named = Some(InFlight::keep(named));
        let complete = self.armed.complete(directory, &self.content);
        complete.on("cannot sync a marker in", &self.directory)?;
        let named = self.armed.give_names(directory, &self.content);
        named.on("cannot name a marker in", &self.directory)?;
        self.sync_directories(directory)
    }

    fn sync_directories(&self, handle: &OwnedFd) -> Result<(), Error> {
        if !mutant::is("marker-unsynced") && !mutant::is("marker-directory-unsynced") {
            let synced = file_system::sync_directory(handle.as_fd());
            synced.on("cannot sync", &self.directory)?;
        }
        if !mutant::is("marker-unsynced") && !mutant::is("marker-parents-unsynced") {
            self.directories.sync_names(handle.as_fd(), &self.directory)?;
        }
        Ok(())
    }

    /// Whether the files may have names: the marker is durable, or an `engage` has failed.
    pub fn is_named(&self) -> bool {
        self.named.is_some()
    }

    /// Whether the marker is in the root of another system.
    pub fn is_in_root(&self) -> bool {
        self.root.is_some()
    }

    /// Returns the path that the public file has once the marker is engaged.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.content.public.name)
    }

    /// Returns the marker's public file, which shows on which file system the marker is.
    ///
    /// # Errors
    /// `EMFILE` or `ENFILE`: no descriptor is free.
    pub fn file(&self) -> Result<impl AsFd + use<>, Errno> {
        self.armed.file()
    }

    /// Removes the marker durably, once the run's data are durable. Succeeds if the command has
    /// removed the marker with its directory.
    ///
    /// Returns how long the syncs of the two new files and of the removal took, as a measure of
    /// the disk; nothing if the marker was not engaged.
    ///
    /// # Errors
    /// Names the act and path. `status` may then report the run as interrupted, which is safe.
    pub fn clear(mut self) -> Result<Vec<Duration>, Error> {
        let Some(directory) = self.named.as_ref().filter(|_| self.engaged) else {
            return Ok(Vec::new());
        };
        let directory = directory.descriptor().on("cannot open", &self.directory)?;
        self.remove_from(&directory)?;
        let began = Instant::now();
        rustix::fs::fsync(&directory).on("cannot sync", &self.directory)?;
        let removal = began.elapsed();
        let times = self.armed.sync_times().iter().copied().chain([removal]).collect();
        // A command that replaces its root by a copy copies the marker, too.
        if self.root.is_some()
            && let Ok(copy) = open_directory(&self.directory)
            && self.remove_from(&copy)?
        {
            rustix::fs::fsync(&copy).on("cannot sync", &self.directory)?;
        }
        (self.named, self.engaged) = (None, false);
        Ok(times)
    }

    /// Removes both files, and returns whether one of them existed.
    fn remove_from(&self, directory: &OwnedFd) -> Result<bool, Error> {
        let mut any = false;
        for name in self.content.names() {
            any |= remove(directory, name).on("cannot remove", &self.directory.join(name))?;
        }
        Ok(any)
    }
}

impl Drop for Marker {
    /// Removes a marker that was never engaged; an engaged marker stays.
    fn drop(&mut self) {
        if self.engaged {
            return;
        }
        // No call was held: a name that stays causes a needless warning, and hides none.
        let named = self.named.as_ref().and_then(|named| named.descriptor().ok());
        if let Some(directory) = &named {
            let _ = self.remove_from(directory);
        }
        self.armed.forget(named.as_ref());
        if self.root.is_some() {
            self.directories.remove();
        } else if standard_paths::is_program_gone() {
            // A purge of the package in this run left the directories to the marker. Only empty
            // ones are removed.
            for directory in self.directory.ancestors().take(2) {
                let _ = std::fs::remove_dir(directory);
            }
        }
    }
}

/// Returns the directory of markers in `root`, the root of another system, without links.
///
/// # Errors
/// A link below `root` leads nowhere, or its target cannot be looked up.
pub fn directory_in(root: &Path) -> Result<PathBuf, Error> {
    let below = Path::new(STATE_BELOW_ROOT).join(RUNS);
    in_root::resolve(root, &below).on("cannot write a marker in", &root.join(below))
}

/// Returns `path`, or the nearest directory above it that exists.
fn deepest_there(path: &Path) -> &Path {
    let is_there = |above: &&Path| above.symlink_metadata().is_ok();
    path.ancestors().find(is_there).unwrap_or(path)
}

/// Calls `act` again while a directory is missing: another run that ends may remove the
/// directory while it is empty.
fn again_while_gone<T>(mut act: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    // Each failure means that another run has just ended. After 32 of them the path is missing
    // for another reason.
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

/// Whether the armed file cannot be linked into the directory (`EXDEV`, link(2)): the command
/// has mounted another file system there, or the two have different project quotas.
fn is_elsewhere(error: &Error) -> bool {
    error.io().kind() == ErrorKind::CrossesDevices
}

/// Whether `name` is the file name of an engaged marker.
pub(crate) fn is_marker(name: &Path) -> bool {
    name.extension().is_some_and(|suffix| suffix == PUBLIC)
        && !name.to_string_lossy().starts_with('.')
}
