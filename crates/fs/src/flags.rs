//! File flags that forbid changes (ioctl_iflags(2)).

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use std::os::fd::BorrowedFd;

/// Clears the flags of an open file that forbid removal and change. Returns whether a flag was
/// set.
pub fn unflag(file: BorrowedFd<'_>) -> bool {
    let Ok(flags) = ioctl_getflags(file) else { return false };
    let forbidding = IFlags::IMMUTABLE | IFlags::APPEND;
    flags.intersects(forbidding) && ioctl_setflags(file, flags - forbidding).is_ok()
}
