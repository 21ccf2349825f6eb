//! The two files of a marker, from the moment they are written until they have
//! their names.

use crate::error::{Context, Error};
use crate::mutant;
use crate::record::Record;
use rustix::fs::{Advice, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The suffix of a public file: it says that a run is in flight, and everyone may read it.
pub(crate) const PUBLIC: &str = "json";
/// The suffix of a private file, which only the user of the run may read.
pub const PRIVATE: &str = "private";

/// What is written into the files, and the names that they get.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) public: Part,
    pub(super) private: Part,
}

/// What is written into one file.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) text: Vec<u8>,
    pub(crate) mode: Mode,
}

impl Content {
    pub(super) fn of(record: &Record) -> serde_json::Result<Self> {
        let (public, private) = record.to_files()?;
        let (owner, others) = (Mode::RUSR | Mode::WUSR, Mode::RGRP | Mode::ROTH);
        let part =
            |suffix, text, mode| Part { name: format!("{}.{suffix}", record.id), text, mode };
        Ok(Self {
            public: part(PUBLIC, public, owner | others),
            private: part(PRIVATE, private, owner),
        })
    }

    /// Both names, in the order in which they are removed: a private file that is left
    /// alone says nothing.
    pub(super) fn names(&self) -> [&str; 2] {
        [&self.public.name, &self.private.name]
    }
}

/// The files, which have no name yet.
#[derive(Debug)]
pub(super) struct Armed {
    directory: OwnedFd,
    public: Unnamed,
    /// Written when the marker is engaged: a file that is thrown away on a disk costs
    /// milliseconds, and most commands never sync.
    private: Option<Unnamed>,
}

/// A locked file with its content.
#[derive(Debug)]
pub(crate) struct Unnamed {
    file: File,
    /// A file system without O_TMPFILE: the name the file has until it gets its own.
    temporary: Option<String>,
}

impl Armed {
    /// Writes and locks the public file in `directory`, or on its file system.
    pub(super) fn new(directory: &Path, content: &Content) -> Result<Self, Error> {
        let handle = open_directory(directory)?;
        let public = Unnamed::new(&handle, &content.public);
        let public = public.on("cannot write a marker in", directory)?;
        Ok(Self { directory: handle, public, private: None })
    }

    /// The public file.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.public.file.as_fd()
    }

    /// Writes and locks the private file, for the directory `to`, and makes the public one
    /// durable, before it has its name: a name without content would be a damaged marker
    /// of a run that has held nothing.
    pub(super) fn complete(&mut self, to: &OwnedFd, content: &Content) -> io::Result<()> {
        let private = match self.private.take() {
            Some(private) => private,
            None => Unnamed::new(to, &content.private)?,
        };
        let private = self.private.insert(private);
        if mutant::is("marker-unsynced") {
            return Ok(());
        }
        // Starts to write the private file, without waiting (posix_fadvise(2)): on a file
        // system with a journal one commit then covers both files.
        let _ = rustix::fs::fadvise(&*private, 0, None, Advice::DontNeed);
        Ok(rustix::fs::fsync(&self.public)?)
    }

    /// Adds `text` to the public file, which has `length` bytes, durably. What a full disk
    /// left there of an earlier try is overwritten.
    pub(super) fn append(&self, length: u64, text: &[u8]) -> io::Result<()> {
        // Its lock belongs to the opening that we keep, which is for reading.
        let path = format!("/proc/self/fd/{}", self.public.file.as_raw_fd());
        let file = File::options().write(true).open(path)?;
        file.write_all_at(text, length)?;
        if mutant::is("marker-file-systems-unsynced") {
            return Ok(());
        }
        file.sync_data()
    }

    /// Gives both files their names in `to`. The private file is first: whoever
    /// finds the public one finds both.
    ///
    /// The private file is made durable after that, because on ext4 and XFS the same
    /// commit of the journal then covers the directory: two files cost as many flushes
    /// as one.
    pub(super) fn give_names(&self, to: &OwnedFd, content: &Content) -> Result<(), Errno> {
        let give = |file: &Unnamed, from, name| match file.give_name(from, to, name) {
            // Ours, of a try that failed at the other file.
            Err(Errno::EXIST) => {
                remove(to, name)?;
                file.give_name(from, to, name)
            }
            other => other,
        };
        if let Some(private) = &self.private {
            give(private, to, &content.private.name)?;
        }
        give(&self.public, &self.directory, &content.public.name)?;
        // Left out where the directory is, because it does the same there.
        let left_out = mutant::is("marker-unsynced") || mutant::is("marker-directory-unsynced");
        match self.private.as_ref().filter(|_| !left_out) {
            Some(private) => rustix::fs::fsync(private),
            None => Ok(()),
        }
    }

    /// Removes the temporary names, of which the private file's is in `to`.
    pub(super) fn forget(&self, to: Option<&OwnedFd>) {
        let files = [(Some(&self.public), Some(&self.directory)), (self.private.as_ref(), to)];
        for (file, directory) in files {
            let temporary = file.and_then(|file| file.temporary.as_ref());
            if let (Some(temporary), Some(directory)) = (temporary, directory) {
                // Nothing was held; a file with such a name is no marker.
                let _ = remove(directory, temporary);
            }
        }
    }
}

impl Unnamed {
    /// Writes and locks a file in `directory` that is to have the name of `part`.
    pub(crate) fn new(directory: &OwnedFd, part: &Part) -> io::Result<Self> {
        let (mut file, temporary) = create(directory, &part.name, part.mode)?;
        file.write_all(&part.text)?;
        // The umask is for what users write. A file system without modes has its own.
        let _ = rustix::fs::fchmod(&file, part.mode);
        let file = for_reading(file);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { file, temporary })
    }

    /// Gives the file, which was made in `from`, its name in `to`.
    pub(crate) fn give_name(&self, from: &OwnedFd, to: &OwnedFd, name: &str) -> Result<(), Errno> {
        if let Some(temporary) = &self.temporary {
            return rustix::fs::renameat(from, temporary, to, name);
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(rustix::fs::CWD, &path, to, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl AsFd for Unnamed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Removes `name`; whether it was there.
pub(crate) fn remove(directory: &OwnedFd, name: &str) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        // ESTALE: on a network file system, the directory itself is gone.
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
        // ext4 says EPERM in a directory that was removed.
        Err(Errno::PERM) if rustix::fs::fstat(directory)?.st_nlink == 0 => Err(Errno::NOENT),
        Err(error) => Err(error),
    }
}

/// The same file, not open for writing: the run may remount its disk read-only.
/// A lock belongs to one opening, so it comes after.
fn for_reading(file: File) -> File {
    // Without /proc it stays as it is, and so does the disk.
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or(file)
}
