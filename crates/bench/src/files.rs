//! Files and directories, with errors that name the path.

use crate::Error;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Creates a directory with its parents.
pub(crate) fn create_dir(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::io("create", path))
}

pub(crate) fn read(path: impl AsRef<Path>) -> Result<String, Error> {
    fs::read_to_string(&path).map_err(Error::io("read", path))
}

/// Creates or replaces a file.
pub(crate) fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<(), Error> {
    fs::write(&path, content).map_err(Error::io("write", path))
}

/// Sets the mode of a file. The umask does not apply.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(Error::io("change the mode of", path))
}
