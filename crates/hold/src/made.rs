//! What a start made, until the start succeeds.

use crate::safe_directory::{SafeDirectory, type_of};
use rustix::fs::{AtFlags, OFlags};
use std::ffi::{OsStr, OsString};
use synconce_sys::lease::is_open_for_writing;

/// Empty files and directories that a start made. Dropped, it removes those that are still
/// empty. A file that a process has open for writing stays: what the process writes later would be
/// lost with the name.
#[derive(Debug, Default)]
pub(crate) struct Made(Vec<(SafeDirectory, OsString)>);

impl Made {
    /// Adds the name in the directory, which was made just now, after the directories above it.
    pub(crate) fn add(&mut self, directory: SafeDirectory, name: OsString) {
        self.0.push((directory, name));
    }

    /// Keeps everything: the start succeeded.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for (directory, name) in self.0.iter().rev() {
            let Ok(Some(found)) = directory.look(name) else { continue };
            // Another process may have written meanwhile. What is mounted is busy.
            let flags = if type_of(&found).is_dir() {
                AtFlags::REMOVEDIR
            } else if found.st_size == 0 && is_unused(directory, name) {
                AtFlags::empty()
            } else {
                continue;
            };
            let _ = rustix::fs::unlinkat(directory, name, flags);
        }
    }
}

/// Whether no process has the file open for writing. `false` where the kernel does not say so.
fn is_unused(directory: &SafeDirectory, name: &OsStr) -> bool {
    let file = directory.open_file(name, OFlags::RDONLY);
    file.is_ok_and(|file| is_open_for_writing(file) == Ok(false))
}
