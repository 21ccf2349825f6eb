//! Files in a state directory. Such a file is made without a name, and is locked until its run
//! ends.
//!
//! A path that is read here can lead to anything: another user may have put it there, or a crash
//! may have damaged it.

use crate::error::{Context, Error};
use crate::in_flight::InFlight;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The suffix of a public file, the part of a marker that everyone may read.
pub(crate) const PUBLIC: &str = "json";
/// The suffix of a private file, the part of a marker that only the user of the run may read.
pub const PRIVATE: &str = "private";

/// The most bytes that are read of a record. A command line has at most 6 MiB (execve(2)), and
/// JSON writes a byte as at most six.
const LONGEST: u64 = 64 << 20;

/// The name, content and mode of one file.
#[derive(Debug)]
pub(crate) struct StatePart {
    pub(crate) name: String,
    pub(crate) text: Vec<u8>,
    pub(crate) mode: Mode,
}

/// A locked file that has its content but not its final name yet.
#[derive(Debug)]
pub(crate) struct Unnamed {
    file: File,
    /// The file's temporary name, on a file system without O_TMPFILE.
    temporary: Option<String>,
}

impl Unnamed {
    /// Makes a file in `directory` with the content and mode of `part`, and locks it. The file does
    /// not get the name of `part` yet.
    ///
    /// # Errors
    /// On a file system without O_TMPFILE, `EEXIST` or `EWOULDBLOCK` if another process is writing
    /// a file of that name, and `EEXIST` if the temporary name is taken.
    pub(crate) fn new(directory: &OwnedFd, part: &StatePart) -> io::Result<Self> {
        match create_unnamed(directory, part.mode)? {
            Some(file) => Ok(Self { file: write_and_lock(&file, part)?, temporary: None }),
            None => Self::with_temporary_name(directory, part),
        }
    }

    /// Makes a file with a temporary name.
    ///
    /// A killed writer leaves a file of that name without a lock. Only the process that has the
    /// lock of a file may remove or rename the file. A new file has no lock for a moment, so
    /// another process may remove it as the file of a killed writer. So this checks, under the
    /// lock, that the name still leads to the new file.
    fn with_temporary_name(directory: &OwnedFd, part: &StatePart) -> io::Result<Self> {
        let temporary = format!(".{}.new", part.name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(directory, &temporary, flags, part.mode);
        let file = match create() {
            Err(Errno::EXIST) => {
                // If the file cannot be removed, the second attempt says that the file exists.
                let _ = remove_unlocked(directory, &temporary);
                create()?
            }
            other => other?,
        };
        let file = write_and_lock(&file.into(), part).inspect_err(|_| {
            let _ = remove_unlocked(directory, &temporary);
        })?;
        if !has_name(&file, directory, &temporary)? {
            return Err(Errno::EXIST.into());
        }
        Ok(Self { file, temporary: Some(temporary) })
    }

    /// Gives the file the name `name` in `to`. The file was made in `from`.
    ///
    /// # Errors
    /// `EEXIST` if `to` has an entry `name`. A file with a temporary name replaces that entry
    /// instead.
    pub(crate) fn give_name(&self, from: &OwnedFd, to: &OwnedFd, name: &str) -> Result<(), Errno> {
        if let Some(temporary) = &self.temporary {
            return rustix::fs::renameat(from, temporary, to, name);
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(rustix::fs::CWD, &path, to, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// Removes the temporary name, if there is one, from `directory`, where the file was made.
    pub(crate) fn forget(&self, directory: &OwnedFd) {
        if let Some(temporary) = &self.temporary {
            // A file with a temporary name is no marker, so it may stay.
            let _ = remove(directory, temporary);
        }
    }
}

/// An [`Unnamed`] file whose descriptor is in flight in a socket, where fuser(1) does not find the
/// descriptor.
#[derive(Debug)]
pub(crate) struct Kept {
    file: InFlight,
    temporary: Option<String>,
}

impl From<Unnamed> for Kept {
    fn from(Unnamed { file, temporary }: Unnamed) -> Self {
        Self { file: InFlight::keep(file.into()), temporary }
    }
}

impl Kept {
    /// Returns the file with a new descriptor. The lock outlives the descriptor.
    ///
    /// # Errors
    /// `EMFILE` or `ENFILE`: no descriptor is free.
    pub(crate) fn get(&self) -> Result<Unnamed, Errno> {
        let (file, temporary) = (self.file.descriptor()?.into(), self.temporary.clone());
        Ok(Unnamed { file, temporary })
    }
}

impl AsFd for Unnamed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Removes `name`, and returns whether it existed.
pub(crate) fn remove(directory: &OwnedFd, name: &str) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        // ESTALE: on a network file system, the directory itself was removed.
        Err(Errno::NOENT | Errno::STALE) => Ok(false),
        other => other.map(|()| true),
    }
}

pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).on("cannot open", path)
}

/// Returns a new file without a name; `None` on file systems and kernels without O_TMPFILE.
fn create_unnamed(directory: &OwnedFd, mode: Mode) -> Result<Option<File>, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    match rustix::fs::openat(directory, ".", flags, mode) {
        Ok(file) => Ok(Some(file.into())),
        // open(2) lists these errors.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => Ok(None),
        // ext4 returns EPERM in a removed directory.
        Err(Errno::PERM) if rustix::fs::fstat(directory)?.st_nlink == 0 => Err(Errno::NOENT),
        Err(error) => Err(error),
    }
}

/// Removes `name` from `directory`, unless its file is locked.
///
/// # Errors
/// `EWOULDBLOCK` if the file is locked.
fn remove_unlocked(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let old = match rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?.into(),
    };
    rustix::fs::flock(&old, FlockOperation::NonBlockingLockExclusive)?;
    if has_name(&old, directory, name)? {
        remove(directory, name)?;
    }
    Ok(())
}

/// Whether `name` in `directory` is the name of `file`.
fn has_name(file: &File, directory: &OwnedFd, name: &str) -> Result<bool, Errno> {
    let own = rustix::fs::fstat(file)?;
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(false),
        other => other.map(|there| (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)),
    }
}

/// Gives `file` the content and mode of `part`, opens `file` again for reading only, and locks the
/// returned file. The run may remount its disk read-only, which fails while a file is open for
/// writing. The content is written before the lock: over SMB, only the open file description that
/// has the lock can write (flock(2)).
fn write_and_lock(mut file: &File, part: &StatePart) -> io::Result<File> {
    file.write_all(&part.text)?;
    // The user's umask does not apply to these files. A file system without modes refuses
    // the change.
    let _ = rustix::fs::fchmod(file, part.mode);
    // Without /proc the file stays open for writing, and the remount fails.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let file = File::open(path).or_else(|_| file.try_clone())?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Opens the regular file at `path` for reading. Does not follow a link at `path`, does not block,
/// and opens no device: opening a watchdog, for example, starts its timer.
///
/// # Errors
/// `ELOOP` for a link, `EISDIR` for a directory, `ENODEV` for a file of another kind, and those of
/// stat(2) and open(2).
pub fn open(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
    refuse_other_kinds(&rustix::fs::lstat(path)?)?;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    refuse_other_kinds(&rustix::fs::fstat(&file)?)?;
    Ok(file.into())
}

fn refuse_other_kinds(stat: &Stat) -> Result<(), Errno> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Errno::ISDIR),
        FileType::Symlink => Err(Errno::LOOP),
        _ => Err(Errno::NODEV),
    }
}

/// Parses the JSON in `file`, from its start. Reads at most 64 MiB.
///
/// # Errors
/// Those of reading, and `InvalidData` if the content is not a `T`.
pub fn read<T: DeserializeOwned>(file: &File) -> io::Result<T> {
    Ok(serde_json::from_slice(&content(file)?)?)
}

/// Returns the bytes of `file` from its start, up to [`LONGEST`].
pub(crate) fn content(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Takes a shared lock on `file` (flock(2)), which lasts until `file` is closed.
///
/// # Errors
/// `EWOULDBLOCK` if another open file description has an exclusive lock, as a run has until it
/// ends. Another error, such as `ENOLCK` of a file server, leaves open whether there is a run.
pub fn lock_shared(file: &File) -> Result<(), Errno> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared)
}

/// Returns whether a run has locked `file`. If not, takes a shared lock. If flock(2) fails for
/// another reason, the file counts as not locked: a run that was interrupted is then not hidden.
pub(crate) fn is_locked(file: &File) -> bool {
    lock_shared(file) == Err(Errno::WOULDBLOCK)
}

#[cfg(test)]
mod tests;
