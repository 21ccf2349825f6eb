//! What a recorded disk leaves: the image it began with, and its log.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::FsKind;
use super::log::Log;
use crate::Result;

/// Where a recording lies, and what it is one of. The files go with the rig or the [`Tape`](super::Tape).
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
}
