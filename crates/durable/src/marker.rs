//! The marker: the durable record that a run is in flight.
//!
//! It is *armed* before the command starts: an unnamed file with its content,
//! so that a full or read-only disk is found in time, and a command that never
//! syncs pays no flush. It is *engaged* before the first call is held: synced,
//! named, its directory synced, and the names that lead there. It is *cleared*
//! after the commit. A lock on the file tells a run in flight from one that was
//! interrupted, in any boot, container or pid namespace.

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
    directory: PathBuf,
    content: Vec<u8>,
    name: String,
    armed: Armed,
    named: bool,
    engaged: bool,
    directories: Directories,
    /// Whether made directories are removed with the marker.
    leave_no_trace: bool,
}

/// The file of a marker, in a directory that may be gone meanwhile.
#[derive(Debug)]
struct Armed {
    handle: OwnedFd,
    file: File,
    /// A file system without O_TMPFILE: the name the file has until it is engaged.
    temporary: Option<String>,
}

impl Armed {
    /// Makes `directory`, noting in `directories` what did not exist, and writes the file.
    fn new(
        directory: &Path,
        name: &str,
        content: &[u8],
        directories: &mut Directories,
    ) -> Result<Self, Error> {
        directories.make(directory)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(directory, flags, Mode::empty());
        let handle = handle.on("cannot open", directory)?;
        let created = create(&handle, name).on("cannot create a file in", directory);
        let (mut file, temporary) = created?;
        file.write_all(content).on("cannot write a marker in", directory)?;
        let file = for_reading(file);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .on("cannot lock a marker in", directory)?;
        Ok(Self { handle, file, temporary })
    }

    fn give_name(&self, name: &str) -> Result<(), Errno> {
        if let Some(temporary) = &self.temporary {
            return rustix::fs::renameat(&self.handle, temporary, &self.handle, name);
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let here = rustix::fs::CWD;
        rustix::fs::linkat(here, &path, &self.handle, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Marker {
    /// Arms the marker of `record` below `state`. Nothing is durable yet, but
    /// everything that can be found out without a flush has been.
    ///
    /// With `leave_no_trace`, directories made for it go when it goes.
    ///
    /// # Errors
    /// Names the act and path: a read-only or full file system, missing rights.
    pub fn arm(state: &Path, record: &Record, leave_no_trace: bool) -> Result<Self, Error> {
        let directory = state.join(RUNS);
        let mut content = serde_json::to_vec_pretty(record)
            .map_err(std::io::Error::from)
            .on("cannot write", &directory)?;
        content.push(b'\n');
        let name = format!("{}.{SUFFIX}", record.id);
        let mut directories = Directories::default();
        let armed = again_while_gone(|| Armed::new(&directory, &name, &content, &mut directories))?;
        let (named, engaged) = (false, false);
        Ok(Self { directory, content, name, armed, named, engaged, directories, leave_no_trace })
    }

    /// Makes the marker durable. Idempotent.
    ///
    /// # Errors
    /// Names the act and path; nothing may be held then.
    pub fn engage(&mut self) -> Result<(), Error> {
        if self.engaged {
            return Ok(());
        }
        again_while_gone(|| {
            let engaged = self.engage_here();
            if engaged.as_ref().is_err_and(is_gone) {
                self.armed =
                    Armed::new(&self.directory, &self.name, &self.content, &mut self.directories)?;
            }
            engaged
        })
    }

    fn engage_here(&mut self) -> Result<(), Error> {
        if !mutant::is("marker-unsynced") {
            self.armed.file.sync_all().on("cannot sync a marker in", &self.directory)?;
        }
        self.armed.give_name(&self.name).on("cannot name a marker in", &self.directory)?;
        self.named = true;
        self.sync_directories()?;
        self.engaged = true;
        Ok(())
    }

    fn sync_directories(&self) -> Result<(), Error> {
        if !mutant::is("marker-unsynced") && !mutant::is("marker-directory-unsynced") {
            rustix::fs::fsync(&self.armed.handle).on("cannot sync", &self.directory)?;
        }
        if !mutant::is("marker-unsynced") && !mutant::is("marker-parents-unsynced") {
            self.directories.sync_names(self.armed.handle.as_fd(), &self.directory)?;
        }
        Ok(())
    }

    /// Whether the marker is durable, so that calls may be held.
    pub fn is_engaged(&self) -> bool {
        self.engaged
    }

    /// The path at which an engaged marker is found.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The marker's file, for finding the file system that it is on.
    pub fn file(&self) -> rustix::fd::BorrowedFd<'_> {
        self.armed.file.as_fd()
    }

    /// Removes the marker durably: the run's data are safe.
    ///
    /// # Errors
    /// Names the act and path; the run is then found interrupted, which is the
    /// safe side.
    pub fn clear(mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.engaged) {
            rustix::fs::unlinkat(&self.armed.handle, &self.name, AtFlags::empty())
                .on("cannot remove", &self.path())?;
            self.named = false;
            self.armed.temporary = None;
            rustix::fs::fsync(&self.armed.handle).on("cannot sync", &self.directory)?;
        }
        Ok(())
    }
}

impl Drop for Marker {
    /// A marker that was never engaged leaves nothing behind; an engaged one stays.
    fn drop(&mut self) {
        if self.engaged {
            return;
        }
        let name = if self.named { Some(&self.name) } else { self.armed.temporary.as_ref() };
        if let Some(name) = name {
            // Nothing was held, so a name that cannot be removed claims too much, not too little.
            let _ = rustix::fs::unlinkat(&self.armed.handle, name, AtFlags::empty());
        }
        if self.leave_no_trace {
            self.directories.remove();
        }
    }
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
