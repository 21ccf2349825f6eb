//! The two files of a marker, from their first byte until they have their names.

use crate::error::{Context, Error};
use crate::mutant;
use crate::record::Record;
use crate::state_file::{PRIVATE, PUBLIC, Part, Unnamed, open_directory, remove};
use rustix::fs::{Advice, Mode};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The content and the names of the two files.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) public: Part,
    pub(super) private: Part,
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

    /// Returns both names, in the order of removal: a private file alone has no meaning.
    pub(super) fn names(&self) -> [&str; 2] {
        [&self.public.name, &self.private.name]
    }
}

/// The files before they have names.
#[derive(Debug)]
pub(super) struct Armed {
    directory: OwnedFd,
    public: Unnamed,
    /// Written when the marker is engaged: a file that is written to a disk and discarded
    /// costs milliseconds, and most commands never sync.
    private: Option<Unnamed>,
}

impl Armed {
    /// Writes and locks the public file in `directory`.
    pub(super) fn new(directory: &Path, content: &Content) -> Result<Self, Error> {
        let handle = open_directory(directory)?;
        let public = Unnamed::new(&handle, &content.public);
        let public = public.on("cannot write a marker in", directory)?;
        Ok(Self { directory: handle, public, private: None })
    }

    /// Returns the public file.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.public.as_fd()
    }

    /// Writes and locks the private file in the directory `to`, and makes the public file
    /// durable before it has its name: a name without content would be a damaged marker of a
    /// run that has held nothing.
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

    /// Adds `text` to the public file, which has `length` bytes, durably. Overwrites what an
    /// earlier attempt left when the disk was full.
    pub(super) fn append(&self, length: u64, text: &[u8]) -> io::Result<()> {
        // The lock belongs to `self.public`, which is open for reading only.
        let path = format!("/proc/self/fd/{}", self.file().as_raw_fd());
        let file = File::options().write(true).open(path)?;
        file.write_all_at(text, length)?;
        if mutant::is("marker-file-systems-unsynced") {
            return Ok(());
        }
        file.sync_data()
    }

    /// Gives both files their names in `to`. The private file is first, so that a process that
    /// finds the public file finds both.
    ///
    /// The private file is synced after that, because on ext4 and XFS the same commit of the
    /// journal then covers the directory: two files cost as many flushes as one.
    pub(super) fn give_names(&self, to: &OwnedFd, content: &Content) -> Result<(), Errno> {
        let give = |file: &Unnamed, from, name| match file.give_name(from, to, name) {
            // The name of an earlier attempt of this run, which failed at the other file.
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
        // The mutants without a directory sync skip this sync, because it syncs the directory
        // as well.
        let left_out = mutant::is("marker-unsynced") || mutant::is("marker-directory-unsynced");
        match self.private.as_ref().filter(|_| !left_out) {
            Some(private) => rustix::fs::fsync(private),
            None => Ok(()),
        }
    }

    /// Removes the temporary names; that of the private file is in `to`.
    pub(super) fn forget(&self, to: Option<&OwnedFd>) {
        self.public.forget(&self.directory);
        if let (Some(private), Some(to)) = (&self.private, to) {
            private.forget(to);
        }
    }
}
