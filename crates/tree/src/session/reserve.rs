//! Space that a session reserves, so that its changes can be kept on a disk that its command has
//! filled.

use super::Session;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate, fstatvfs, openat, unlinkat};
use std::fs;
use std::os::fd::BorrowedFd;

/// The reserved file in the session's directory.
const RESERVE: &str = "reserve";
/// Has room for the note of the changes, the directories of the layer, and the fingerprint of some
/// thousand directories.
const BYTES: u64 = 256 << 10;

/// The session itself needs space, too: with less free space than this, nothing is reserved.
const LEAST_FREE: u64 = 4 * BYTES;

/// Best effort: reserves space in the directory of a session.
pub(super) fn reserve(directory: BorrowedFd<'_>) {
    let has_room =
        |disk: rustix::fs::StatVfs| disk.f_bavail.saturating_mul(disk.f_frsize) >= LEAST_FREE;
    if !fstatvfs(directory).is_ok_and(has_room) {
        return;
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(file) = openat(directory, RESERVE, flags, Mode::RUSR | Mode::WUSR) else { return };
    if fallocate(&file, FallocateFlags::empty(), 0, BYTES).is_err() {
        let _ = unlinkat(directory, RESERVE, AtFlags::empty());
    }
}

impl<State> Session<'_, State> {
    /// Frees the reserved space.
    pub(crate) fn release_reserve(&self) {
        let _ = fs::remove_file(self.directory().join(RESERVE));
    }
}
