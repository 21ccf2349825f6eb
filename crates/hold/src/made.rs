//! What a start made, until the start succeeds.

use std::fs;
use std::path::PathBuf;

/// Empty files and directories that a start made. Dropped, it removes those that are still
/// empty.
#[derive(Debug, Default)]
pub(crate) struct Made(Vec<PathBuf>);

impl Made {
    /// Adds `path`, which was made just now, after the directories above it.
    pub(crate) fn add(&mut self, path: PathBuf) {
        self.0.push(path);
    }

    /// Keeps everything: the start succeeded.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            let Ok(found) = path.symlink_metadata() else { continue };
            // Another process may have written meanwhile. What is mounted is busy.
            let _ = match found.is_dir() {
                true => fs::remove_dir(path),
                false if found.len() == 0 => fs::remove_file(path),
                false => Ok(()),
            };
        }
    }
}
