//! The directory in which a base is made.

use crate::{Error, mounts};
use std::path::{Path, PathBuf};

/// The directory in which a base is made. Mounts that an interrupted debootstrap left are
/// unmounted before the directory is removed.
pub(super) struct BuildDir(tempfile::TempDir);

impl BuildDir {
    pub(super) fn new(parent: &Path) -> Result<Self, Error> {
        let dir = tempfile::Builder::new().prefix("building-").tempdir_in(parent);
        Ok(Self(dir.map_err(Error::io("make a directory in", parent))?))
    }

    pub(super) fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }
}

impl Drop for BuildDir {
    fn drop(&mut self) {
        // Dropping the directory must not remove files below a mount.
        let cleared = mounts::unmount_below(self.0.path()).is_ok();
        self.0.disable_cleanup(!cleared);
    }
}
