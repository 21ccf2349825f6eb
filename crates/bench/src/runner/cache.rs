//! Cold caches.

use crate::Error;
use std::fs::{self, File};
use std::path::Path;

/// Where the kernel is told to empty its caches (proc_sys_vm(5)).
const DROP: &str = "/proc/sys/vm/drop_caches";

/// Names and inodes, and the pages: ext4's inode tables are pages of the disk's own.
const ALL: &str = "3\n";

/// Empties the kernel's caches, those of every disk and program on this machine.
/// What is written but not on the disk would stay, so the disk under test is
/// synced first.
pub(super) fn empty(path: Option<&Path>) -> Result<(), Error> {
    if let Some(path) = path {
        let dir = File::open(path).map_err(Error::io("open", path))?;
        rustix::fs::syncfs(&dir).map_err(Error::io("sync", path))?;
    }
    fs::write(DROP, ALL).map_err(Error::io("write", DROP))
}
