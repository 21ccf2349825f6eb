//! The two files of a marker, from their first byte until they have their names.

use crate::error::{Context, Error};
use crate::in_flight::InFlight;
use crate::mutant;
use crate::record::RunRecord;
use crate::state_file::{Kept, PRIVATE, PUBLIC, StatePart, Unnamed, open_directory, remove};
use rustix::fs::{Advice, Mode};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The content and the names of the two files.
#[derive(Debug)]
pub(super) struct MarkerContent {
    pub(super) public: StatePart,
    pub(super) private: StatePart,
}

impl MarkerContent {
    pub(super) fn from_record(record: &RunRecord) -> serde_json::Result<Self> {
        let (public, private) = record.to_files()?;
        let (owner, others) = (Mode::RUSR | Mode::WUSR, Mode::RGRP | Mode::ROTH);
        let part =
            |suffix, text, mode| StatePart { name: format!("{}.{suffix}", record.id), text, mode };
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

/// The files before they have names. No other program finds their descriptors: `fuser --kill` of
/// the mount would kill the supervisor.
#[derive(Debug)]
pub(super) struct Armed {
    directory: InFlight,
    public: Kept,
    /// Written when the marker is engaged: a file that is written to a disk and discarded
    /// costs milliseconds, and most commands never sync.
    private: Option<Kept>,
    /// The durations of the syncs of these files, in their order.
    times: Vec<Duration>,
}

impl Armed {
    /// Writes and locks the public file in `directory`.
    pub(super) fn new(directory: &Path, content: &MarkerContent) -> Result<Self, Error> {
        let handle = open_directory(directory)?;
        let public = Unnamed::new(&handle, &content.public);
        let public = public.on("cannot write a marker in", directory)?;
        Ok(Self {
            directory: InFlight::keep(handle),
            public: public.into(),
            private: None,
            times: Vec::new(),
        })
    }

    /// Returns the public file.
    pub(super) fn file(&self) -> Result<Unnamed, Errno> {
        self.public.get()
    }

    /// Writes and locks the private file in the directory `to`, and makes the public file
    /// durable before it has its name: a name without content would be a damaged marker of a
    /// run that has held nothing.
    pub(super) fn complete(&mut self, to: &OwnedFd, content: &MarkerContent) -> io::Result<()> {
        let private = match &self.private {
            Some(private) => private.get()?,
            None => self.private.insert(Unnamed::new(to, &content.private)?.into()).get()?,
        };
        if mutant::is("marker-unsynced") {
            return Ok(());
        }
        // Starts to write the private file, without waiting (posix_fadvise(2)): on a file
        // system with a journal one commit then covers both files.
        let _ = rustix::fs::fadvise(&private, 0, None, Advice::DontNeed);
        let public = self.file()?;
        Ok(self.sync(&public)?)
    }

    fn sync(&mut self, file: &Unnamed) -> Result<(), Errno> {
        let began = Instant::now();
        rustix::fs::fsync(file)?;
        self.times.push(began.elapsed());
        Ok(())
    }

    /// Returns the durations of the syncs of these files. Each sync wrote a small new file.
    pub(super) fn sync_times(&self) -> &[Duration] {
        &self.times
    }

    /// Adds `text` to the public file, which has `length` bytes, durably. Overwrites what an
    /// earlier attempt left when the disk was full.
    pub(super) fn append(&self, length: u64, text: &[u8]) -> io::Result<()> {
        // The lock belongs to `self.public`, which is open for reading only.
        let public = self.file()?;
        let path = format!("/proc/self/fd/{}", public.as_fd().as_raw_fd());
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
    /// The private file is synced after that: on ext4 and XFS the same commit of the journal then
    /// also covers the directory, so two files cost as many flushes as one.
    pub(super) fn give_names(
        &mut self,
        to: &OwnedFd,
        content: &MarkerContent,
    ) -> Result<(), Errno> {
        let give = |file: &Unnamed, from, name| match file.give_name(from, to, name) {
            // The name of an earlier attempt of this run, which failed at the other file.
            Err(Errno::EXIST) => {
                remove(to, name)?;
                file.give_name(from, to, name)
            }
            other => other,
        };
        let private = self.private.as_ref().map(Kept::get).transpose()?;
        if let Some(private) = &private {
            give(private, to, &content.private.name)?;
        }
        give(&self.file()?, &self.directory.descriptor()?, &content.public.name)?;
        // The mutants without a directory sync skip this sync, because it syncs the directory
        // as well.
        let left_out = mutant::is("marker-unsynced") || mutant::is("marker-directory-unsynced");
        private.filter(|_| !left_out).map_or(Ok(()), |private| self.sync(&private))
    }

    /// Removes the temporary names; that of the private file is in `to`.
    pub(super) fn forget(&self, to: Option<&OwnedFd>) {
        if let (Ok(public), Ok(directory)) = (self.file(), self.directory.descriptor()) {
            public.forget(&directory);
        }
        if let (Some(Ok(private)), Some(to)) = (self.private.as_ref().map(Kept::get), to) {
            private.forget(to);
        }
    }
}
