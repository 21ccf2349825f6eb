//! Counts the failed syncs of each file system.
//!
//! The kernel reports a lost write to each descriptor that was open when the write was lost. Of the
//! descriptors that are opened later, only the first sync reports it (syncfs(2), errseq). Without
//! the count, a later command would report its data as durable.
//!
//! Each count is the size of a file. Commands that fail at the same time append a byte each. If the
//! disk loses the bytes, the kernel still has the size in memory.

use crate::error::{Context, Error};
use crate::standard_paths;
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use synconce_probe::mounts::{self, DeviceId};

/// Returns how many syncs of `device` by root or by this user have failed. A count that cannot be
/// read is 0.
pub fn syncs_of(device: DeviceId) -> u64 {
    let directories = standard_paths::failures().into_iter();
    directories.map(|directory| count(&path_in(&directory, device)).unwrap_or(0)).sum()
}

/// Counts a failed sync of `device`. Ignores errors, because the caller reports the failed sync.
pub(crate) fn note(device: DeviceId) {
    let Some(directory) = standard_paths::failures().into_iter().next() else { return };
    // `make_runtime` makes a directory that all users may read.
    for made in directory.parent().into_iter().chain([&*directory]) {
        if standard_paths::make_runtime(made).is_err() {
            return;
        }
    }
    let _ = add(&path_in(&directory, device));
}

/// Like [`note`], for the file system of `file`, if the mount is in this mount namespace.
pub(crate) fn note_at(file: BorrowedFd<'_>) {
    let mounts = mounts::ours().unwrap_or_default();
    let id = mounts::mount_id(file);
    if let Some(mount) = mounts.iter().find(|mount| Some(mount.id) == id) {
        note(mount.device);
    }
}

fn path_in(directory: &Path, device: DeviceId) -> PathBuf {
    directory.join(device.to_string())
}

/// Returns the number in the file `path`; 0 if there is none.
///
/// # Errors
/// Names the file, if lstat(2) fails for another reason than `ENOENT`.
pub fn count(path: &Path) -> Result<u64, Error> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        found => Ok(found.on("cannot look at", path)?.len()),
    }
}

/// Adds 1 to the number in the file `path`.
///
/// # Errors
/// Names the act and the file: the disk may be full or read-only.
pub fn add(path: &Path) -> Result<(), Error> {
    // Another user may own the directory, and put a link there.
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).custom_flags(flags).open(path);
    file.and_then(|mut file| file.write_all(b"\n")).on("cannot write", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_at_the_same_time_are_all_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("number");
        assert_eq!(count(&path).unwrap(), 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| add(&path).unwrap()));
            }
        });
        assert_eq!(count(&path).unwrap(), 200);
    }
}
