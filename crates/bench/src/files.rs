//! Files and directories, with errors that name the path.

use crate::Error;
use crate::launcher::Launcher;
use std::fs::{self, Metadata, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Creates a directory with its parents.
pub(crate) fn create_dir(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::io("create", path))
}

/// Returns the content of a text file.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String, Error> {
    fs::read_to_string(&path).map_err(Error::io("read", path))
}

/// Creates or replaces a file.
pub(crate) fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<(), Error> {
    fs::write(&path, content).map_err(Error::io("write", path))
}

/// Changes the mode of a file, also where the umask has reduced the mode.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(Error::io("change the mode of", path))
}

/// Calls `visit` with each entry below `root`; symbolic links are not followed. Ends early on an
/// interrupt.
pub(crate) fn walk(
    root: &Path,
    launcher: &Launcher,
    mut visit: impl FnMut(PathBuf, &Metadata) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.pop() {
        launcher.check()?;
        for entry in fs::read_dir(&dir).map_err(Error::io("list", &dir))? {
            let path = entry.map_err(Error::io("list", &dir))?.path();
            let metadata = fs::symlink_metadata(&path).map_err(Error::io("stat", &path))?;
            if metadata.is_dir() {
                pending.push(path.clone());
            }
            visit(path, &metadata)?;
        }
    }
    Ok(())
}
