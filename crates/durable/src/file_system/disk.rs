//! The write cache of a disk.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
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

/// Opens a block device only: the open of another device can start it, as that of a watchdog does.
fn open(path: &Path) -> Option<OwnedFd> {
    let file = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mode = rustix::fs::fstat(&file).ok()?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::BlockDevice {
        return None;
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()
}
