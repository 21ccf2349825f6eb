//! The write cache of a disk.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use synconce_probe::device;
use synconce_probe::mounts::DeviceId;

/// Flushes the block device `device`. Returns `None` without the right to open it.
pub(super) fn flush(device: DeviceId) -> Option<Result<(), Errno>> {
    flush_at(&device::node(device)?)
}

/// Flushes the block device at `path`. Returns `None` if none can be opened there.
pub(super) fn flush_at(path: &Path) -> Option<Result<(), Errno>> {
    open(path).map(rustix::fs::fsync)
}

fn open(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    let mode = rustix::fs::fstat(&file).ok()?.st_mode;
    (FileType::from_raw_mode(mode) == FileType::BlockDevice).then_some(file)
}
