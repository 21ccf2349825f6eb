//! The result of a recorded disk: the image from the start, and the log.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::FsKind;
use super::log::Log;
use crate::Result;

/// The files of a recording and its properties. The files are removed with the rig or the
/// [`Tape`](super::Tape).
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
    /// The mount options of the rig, which are also used after a cut unless others are set.
    pub mount_options: Option<String>,
}

impl Recording {
    /// Reads the log up to the last complete event.
    ///
    /// # Errors
    /// The file cannot be read, or is no log.
    pub fn log(&self) -> Result<Log> {
        Log::open(&self.log)
    }
}
