//! How many syncs of a file system have failed.
//!
//! The kernel reports a lost write to each descriptor that was open when it happened. Of those that
//! are opened later it reports to one alone (syncfs(2), errseq). So a command that comes after the
//! one that got the error would believe its data durable.
//!
//! Each number is the size of a file: commands that fail at the same time append a byte each, and a
//! disk that lost the bytes still has the size in memory.

use crate::error::{Context, Error};
use crate::standard_paths;
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use synconce_probe::mounts::{self, DeviceId};

/// Returns how many syncs of `device` by root or by this user have failed.
pub fn syncs_of(device: DeviceId) -> u64 {
    let directories = standard_paths::failures().into_iter();
    directories.map(|directory| count(&path_in(&directory, device)).unwrap_or(0)).sum()
}

/// Notes that a sync of `device` has failed. Best effort: the failure itself is reported.
pub(crate) fn note(device: DeviceId) {
    let Some(directory) = standard_paths::failures().into_iter().next() else { return };
    // Both directories: all users may look.
    for made in directory.parent().into_iter().chain([&*directory]) {
        if standard_paths::make_runtime(made).is_err() {
            return;
        }
    }
    let _ = add(&path_in(&directory, device));
}

/// Like [`note`], for the file system of `file`.
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
/// Names the file that cannot be looked at.
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
    // The directory can be in another user's tree, and be full of links.
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
