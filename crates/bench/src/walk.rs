//! Walks of a tree.

use crate::Error;
use crate::launcher::Launcher;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

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
