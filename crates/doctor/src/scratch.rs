//! The temporary directory of an examination.

use crate::error::Error;
use rustix::fs::Access;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The start of its name.
const PREFIX: &str = ".synconce-doctor-";

/// A directory with all temporary files. Its drop removes it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the directory in `place`.
    pub(crate) fn new(place: &Path) -> Result<Self, Error> {
        let write = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::access(place, write).map_err(Error::io("write in", place))?;
        let path = place.join(format!("{PREFIX}{:016x}", fastrand::u64(..)));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map(|()| Self(path)).map_err(Error::io("write in", place))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the directory.
    ///
    /// # Errors
    /// It stays, and its path.
    pub(crate) fn remove(self) -> Result<(), Error> {
        fs::remove_dir_all(&self.0).map_err(Error::io("remove", &self.0))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After a failure or a signal. After `remove` there is nothing to remove.
        let _ = fs::remove_dir_all(&self.0);
    }
}
