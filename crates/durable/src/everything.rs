//! What no pin covers: file systems that we cannot open a descriptor on, and raw block
//! devices.

use crate::mutant;
use crate::synced::{Failure, Synced};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::time::Instant;
use synconce_probe::device::{self, Writes};
use synconce_probe::mounts::DeviceId;

/// One `sync(2)` and, after it, a flush of each disk that was written since a run began.
///
/// `sync(2)` writes back every file system of the machine and every block device, but
/// does not empty the write cache of a disk that was written without a file system
/// (Linux 6.18, `ksys_sync` in fs/sync.c). It reports no errors; in a container it reaches
/// the whole host.
#[derive(Debug)]
pub struct Everything {
    written_before: Writes,
    reports_errors: bool,
}

impl Everything {
    /// `written_before` is from before the run. With `reports_errors` it is a failure when a
    /// disk without a mounted file system cannot be flushed; without it the result is that
    /// of `sync(2)`, which has none.
    pub fn new(written_before: Writes, reports_errors: bool) -> Self {
        Self { written_before, reports_errors }
    }

    /// Syncs.
    pub(crate) fn sync(&self) -> Synced {
        let began = Instant::now();
        if mutant::is("everything-skipped") {
            return Ok(began.elapsed());
        }
        rustix::fs::sync();
        let written = match mutant::is("disks-unflushed") {
            true => Vec::new(),
            false => Writes::now().disks_written_since(&self.written_before),
        };
        // Errors of a mounted file system are for its pin to report: a disk that the run has
        // nothing to do with may fail at any time.
        let is_ours = |disk| self.reports_errors && !device::is_claimed(disk);
        let failed = |disk| flush(disk).err().filter(|_| is_ours(disk));
        // Every disk is flushed, whatever became of the others.
        let failures: Vec<Failure> = written.into_iter().filter_map(failed).collect();
        failures.into_iter().next().map_or(Ok(began.elapsed()), Err)
    }
}

/// Empties the write cache of `disk`. A disk that we have no right or no way to open, the
/// run had none to open either. A disk that is detached meanwhile, such as the loop device
/// of another process, is not one that failed.
fn flush(disk: DeviceId) -> Result<(), Failure> {
    let (Some(path), Some(identity)) = (device::node(disk), device::identity(disk)) else {
        return Ok(());
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flushed = match rustix::fs::open(&path, flags, Mode::empty()) {
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NXIO | Errno::NODEV) => Ok(()),
        Err(Errno::NOMEDIUM) => Ok(()),
        Err(error) => Err(error),
        Ok(file) => rustix::fs::fsync(file),
    };
    if device::identity(disk) != Some(identity) {
        return Ok(());
    }
    flushed.map_err(|error| Failure::Disk(path, error.into()))
}
