//! The kernel's caches: written back, and emptied.

use crate::{Error, files};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// The file by which the kernel's caches are emptied (proc_sys_vm(5)).
const DROP: &str = "/proc/sys/vm/drop_caches";

/// Dentries, inodes and pages: ext4's inode tables are in the page cache of the disk.
const ALL: &str = "3\n";

/// Syncs the file system of `path` and returns the time of the sync.
pub(super) fn write_back(path: &Path) -> Result<Duration, Error> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let start = Instant::now();
    rustix::fs::syncfs(&file).map_err(Error::io("sync", path))?;
    Ok(start.elapsed())
}

/// Empties the kernel's caches, those of every disk and program on this machine. Dirty pages
/// would stay cached, so the disk under test is synced first.
pub(super) fn empty(path: Option<&Path>) -> Result<(), Error> {
    path.map(write_back).transpose()?;
    files::write(DROP, ALL)
}
