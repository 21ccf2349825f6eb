//! Cold caches.

use crate::Error;
use std::fs::{self, File};
use std::path::Path;

/// The file by which the kernel's caches are emptied (proc_sys_vm(5)).
const DROP: &str = "/proc/sys/vm/drop_caches";

/// Dentries, inodes and pages: ext4's inode tables are in the page cache of the disk.
const ALL: &str = "3\n";

/// Empties the kernel's caches, those of every disk and program on this machine. Dirty pages
/// would stay cached, so the disk under test is synced first.
pub(super) fn empty(path: Option<&Path>) -> Result<(), Error> {
    if let Some(path) = path {
        let dir = File::open(path).map_err(Error::io("open", path))?;
        rustix::fs::syncfs(&dir).map_err(Error::io("sync", path))?;
    }
    fs::write(DROP, ALL).map_err(Error::io("write", DROP))
}
