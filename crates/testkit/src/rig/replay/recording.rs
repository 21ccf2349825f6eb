//! What a recorded disk leaves: the image it began with, and its log.

use std::ops::Deref;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Builder;
use crate::Result;
use crate::rig::FsKind;
use crate::rig::log::Log;
use crate::rig::record::Record;
use crate::rig::teardown::{Busy, teardown};

/// Where a recording lies, and what it is one of. The files go with the rig or the [`Tape`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recording {
    /// The file system.
    pub fs: FsKind,
    /// The disk's size in bytes.
    pub size: u64,
    /// The image of the disk when the recording began.
    pub base: PathBuf,
    /// The log: see [`Log`].
    pub log: PathBuf,
    /// What it was mounted with, and is mounted with after a cut unless said.
    pub mount_options: Option<String>,
}

impl Recording {
    /// Reads the log, as far as it is written.
    ///
    /// # Errors
    /// The file cannot be read, or is no log.
    pub fn log(&self) -> Result<Log> {
        Log::open(&self.log)
    }

    /// A disk to cut the power of, again and again. Several may replay one recording side by side.
    pub fn replay(&self) -> Builder {
        Builder::new(self.clone())
    }
}

/// A recording whose disk is gone. Dropping it removes the files; the reaper does if this process is
/// killed.
#[derive(Debug)]
pub struct Tape {
    record: Record,
    recording: Recording,
}

impl Tape {
    pub(in crate::rig) fn new(record: Record, recording: Recording) -> Self {
        Self { record, recording }
    }
}

impl Deref for Tape {
    type Target = Recording;

    fn deref(&self) -> &Recording {
        &self.recording
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        if let Err(error) = teardown(&self.record, Busy::Force) {
            eprintln!("rig: cannot remove {}: {error}", self.recording.log.display());
        }
    }
}
