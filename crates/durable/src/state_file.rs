//! A file in a state directory. It is made without a name, and locked until its run ends.
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

/// A locked file that has its content, and does not have its name yet.
#[derive(Debug)]
pub(crate) struct Unnamed {
    file: File,
    /// The file's first name, on a file system without O_TMPFILE.
    temporary: Option<String>,
}

impl Unnamed {
    /// Makes a file in `directory` with the content and mode of `part`, and locks it. The file does
    /// not get the name of `part` yet.
    pub(crate) fn new(directory: &OwnedFd, part: &StatePart) -> io::Result<Self> {
        let (mut file, temporary) = create(directory, &part.name, part.mode)?;
        file.write_all(&part.text)?;
        // The user's umask does not apply to these files. A file system without modes refuses
        // the change.
        let _ = rustix::fs::fchmod(&file, part.mode);
        let file = for_reading(file);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { file, temporary })
    }

    /// Gives the file the name `name` in `to`. The file was made in `from`.
    ///
    /// # Errors
    /// `EEXIST` if `to` has the name. With a temporary name instead, the old file is replaced.
    pub(crate) fn give_name(&self, from: &OwnedFd, to: &OwnedFd, name: &str) -> Result<(), Errno> {
        if let Some(temporary) = &self.temporary {
            return rustix::fs::renameat(from, temporary, to, name);
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(rustix::fs::CWD, &path, to, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// Removes the temporary name, if there is one, in `directory`, where the file was made.
    pub(crate) fn forget(&self, directory: &OwnedFd) {
        if let Some(temporary) = &self.temporary {
            // A file with a temporary name is no marker, so it may stay.
            let _ = remove(directory, temporary);
        }
    }
}

/// An [`Unnamed`] file that is kept in a socket, where fuser(1) does not find it.
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

fn create(directory: &OwnedFd, name: &str, mode: Mode) -> Result<(File, Option<String>), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok((file.into(), None)),
        // File systems and kernels without O_TMPFILE (open(2)).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            let temporary = format!(".{name}.new");
            let flags = flags | OFlags::CREATE | OFlags::EXCL;
            let file = rustix::fs::openat(directory, &temporary, flags, mode)?;
            Ok((file.into(), Some(temporary)))
        }
        // ext4 returns EPERM in a removed directory.
        Err(Errno::PERM) if rustix::fs::fstat(directory)?.st_nlink == 0 => Err(Errno::NOENT),
        Err(error) => Err(error),
    }
}

/// Reopens the file for reading only: the run may remount its disk read-only, which fails while a
/// file is open for writing. Lock the returned file and not `file`, because a lock belongs to one
/// open file description (flock(2)).
fn for_reading(file: File) -> File {
    // Without /proc the file stays open for writing, and the remount fails.
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or(file)
}

/// Opens the regular file at `path` for reading. Does not follow a link at `path`, and does not block.
/// Opens no device that is there: to open some devices has an effect, as a watchdog's starts its timer.
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

/// Whether another open file description has an exclusive lock on `file`. If not, `file` has a
/// shared lock from now on (flock(2)).
pub fn is_locked(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};

    #[test]
    fn only_a_regular_file_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let (file, fifo) = (directory.path().join("file"), directory.path().join("fifo"));
        std::fs::write(&file, "x").unwrap();
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(content(&open(&file).unwrap()).unwrap(), b"x");
        for (path, errno) in
            [(fifo.as_path(), Errno::NODEV), (Path::new("/dev/null"), Errno::NODEV)]
        {
            assert_eq!(open(path).err(), Some(errno), "{}", path.display());
        }
        assert_eq!(open(directory.path()).err(), Some(Errno::ISDIR));
    }
}
