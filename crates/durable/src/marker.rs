//! The marker: the durable record that a run is in flight.
//!
//! It is *armed* before the command starts: an unnamed file with its content,
//! so that a full or read-only disk is found in time, and a command that never
//! syncs pays no flush. It is *engaged* before the first call is held: synced,
//! named, its directory synced, and the names that lead there. It is *cleared*
//! after the commit. A lock on the file tells a run in flight from one that was
//! interrupted, in any boot, container or pid namespace.
//!
//! The command may remove, replace or mount over the directory at any moment. An
//! armed marker is written again where the directory is by then; an engaged one
//! that is gone needs no removal.

use crate::directories::Directories;
use crate::error::{Context, Error};
use crate::mutant;
use crate::record::Record;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The directory of markers below a state directory.
pub const RUNS: &str = "runs";
const SUFFIX: &str = "json";

/// The marker of one run in one state directory.
#[derive(Debug)]
pub struct Marker {
    /// Where the marker is found once it is engaged.
    directory: PathBuf,
    content: Vec<u8>,
    name: String,
    armed: Armed,
    /// `directory`, open, from the moment at which the marker has its name there.
    named: Option<OwnedFd>,
    engaged: bool,
    directories: Directories,
    /// The root of another system that `directory` is in.
    root: Option<PathBuf>,
}

/// The file of a marker that has no name yet.
#[derive(Debug)]
struct Armed {
    handle: OwnedFd,
    file: File,
    /// A file system without O_TMPFILE: the name the file has until it is engaged.
    temporary: Option<String>,
}

impl Armed {
    /// Writes and locks the file, in `directory` or on its file system.
    fn new(directory: &Path, name: &str, content: &[u8]) -> Result<Self, Error> {
        let handle = open_directory(directory)?;
        let created = create(&handle, name).on("cannot create a file in", directory);
        let (mut file, temporary) = created?;
        file.write_all(content).on("cannot write a marker in", directory)?;
        let file = for_reading(file);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .on("cannot lock a marker in", directory)?;
        Ok(Self { handle, file, temporary })
    }

    fn give_name(&self, directory: &OwnedFd, name: &str) -> Result<(), Errno> {
        if let Some(temporary) = &self.temporary {
            return rustix::fs::renameat(&self.handle, temporary, directory, name);
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(rustix::fs::CWD, &path, directory, name, AtFlags::SYMLINK_FOLLOW)
    }
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
        let mut content = serde_json::to_vec_pretty(record)
            .map_err(std::io::Error::from)
            .on("cannot write", &directory)?;
        content.push(b'\n');
        let name = format!("{}.{SUFFIX}", record.id);
        let mut directories = Directories::default();
        let armed = again_while_gone(|| {
            if root.is_none() {
                directories.make(&directory)?;
            }
            Armed::new(deepest_there(&directory), &name, &content)
        })?;
        let (named, engaged, root) = (None, false, root.map(Path::to_owned));
        Ok(Self { directory, content, name, armed, named, engaged, directories, root })
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
                self.armed = Armed::new(&self.directory, &self.name, &self.content)?;
                return self.engage_in(&directory);
            }
            engaged
        })
    }

    fn engage_in(&mut self, directory: &OwnedFd) -> Result<(), Error> {
        if !mutant::is("marker-unsynced") {
            self.armed.file.sync_all().on("cannot sync a marker in", &self.directory)?;
        }
        self.armed
            .give_name(directory, &self.name)
            .on("cannot name a marker in", &self.directory)?;
        self.named = Some(directory.try_clone().on("cannot open", &self.directory)?);
        self.sync_directories(directory)?;
        self.engaged = true;
        Ok(())
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
        self.directory.join(&self.name)
    }

    /// The marker's file, for finding the file system that it is on.
    pub fn file(&self) -> rustix::fd::BorrowedFd<'_> {
        self.armed.file.as_fd()
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
        remove(directory, &self.name).on("cannot remove", &self.path())?;
        rustix::fs::fsync(directory).on("cannot sync", &self.directory)?;
        // A command that copied its root, and put the copy in its place, has copied the marker.
        if self.root.is_some()
            && let Ok(copy) = open_directory(&self.directory)
            && remove(&copy, &self.name).on("cannot remove", &self.path())?
        {
            rustix::fs::fsync(&copy).on("cannot sync", &self.directory)?;
        }
        (self.named, self.armed.temporary, self.engaged) = (None, None, false);
        Ok(())
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
            let _ = remove(directory, &self.name);
        } else if let Some(temporary) = &self.armed.temporary {
            let _ = remove(&self.armed.handle, temporary);
        }
        if self.root.is_some() {
            self.directories.remove();
        }
    }
}

/// Removes `name`; whether it was there.
fn remove(directory: &OwnedFd, name: &str) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        // ESTALE: on a network file system, the directory itself is gone.
        Err(Errno::NOENT | Errno::STALE) => Ok(false),
        other => other.map(|()| true),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).on("cannot open", path)
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

fn create(directory: &OwnedFd, name: &str) -> Result<(File, Option<String>), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    match rustix::fs::openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok((file.into(), None)),
        // File systems and kernels without O_TMPFILE (open(2)).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            let temporary = format!(".{name}.new");
            let flags = flags | OFlags::CREATE | OFlags::EXCL;
            let file = rustix::fs::openat(directory, &temporary, flags, mode)?;
            Ok((file.into(), Some(temporary)))
        }
        Err(error) => Err(error),
    }
}

/// The same file, not open for writing: the run may remount its disk read-only.
/// A lock belongs to one opening, so it comes after.
fn for_reading(file: File) -> File {
    // Without /proc it stays as it is, and so does the disk.
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or(file)
}

/// Whether `name` is the file name of an engaged marker.
pub(crate) fn is_marker(name: &Path) -> bool {
    name.extension().is_some_and(|suffix| suffix == SUFFIX)
        && !name.to_string_lossy().starts_with('.')
}
