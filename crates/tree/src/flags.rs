//! Flags of files that forbid to change them (ioctl_iflags(2)).

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use std::os::fd::BorrowedFd;

/// Takes the flags that forbid removal and change from an open file. Whether it had any.
pub(crate) fn unflag(file: BorrowedFd<'_>) -> bool {
    let Ok(flags) = ioctl_getflags(file) else { return false };
    let forbidding = IFlags::IMMUTABLE | IFlags::APPEND;
    flags.intersects(forbidding) && ioctl_setflags(file, flags - forbidding).is_ok()
}
