//! What no pin covers: file systems that we cannot open a descriptor on, and raw block
//! devices.

use crate::mutant;
use crate::synced::{Failure, Synced};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;
use synconce_probe::device::{self, Writes};
use synconce_probe::mounts::DeviceId;

/// One `sync(2)` and, after it, a flush of disks.
///
/// `sync(2)` writes back every file system of the machine and every block device, but
/// does not empty the write cache of a disk that was written without a file system
/// (Linux 6.18, `ksys_sync` in fs/sync.c). It reports no errors; in a container it reaches
/// the whole host.
#[derive(Debug)]
pub struct Everything {
    written_before: Writes,
    is_sealed: bool,
}

impl Everything {
    /// `written_before` is from before the run.
    ///
    /// Of a run that `is_sealed` any call may have been held on any disk, and about data
    /// that were in its cache before. So every disk that was ever written is flushed, and it
    /// is a failure when one that was written since cannot be, unless a file system or
    /// another driver has it. Of any other run those written since are flushed, and the
    /// result is that of `sync(2)`, which has none.
    pub fn new(written_before: Writes, is_sealed: bool) -> Self {
        Self { written_before, is_sealed }
    }

    /// Syncs.
    pub(crate) fn sync(&self) -> Synced {
        let began = Instant::now();
        if mutant::is("everything-skipped") {
            return Ok(began.elapsed());
        }
        rustix::fs::sync();
        if mutant::is("disks-unflushed") {
            return Ok(began.elapsed());
        }
        let now = Writes::now();
        let written = now.disks_written_since(&self.written_before);
        let ever = if self.is_sealed { &Writes::default() } else { &self.written_before };
        let mut failures = Vec::new();
        let mut any_detached = false;
        // Every disk is flushed, whatever became of the others.
        for disk in now.disks_written_since(ever) {
            match flush(disk) {
                Ok(Flushed::Yes) => {}
                Ok(Flushed::Detached) => any_detached = true,
                Err(failure) if self.is_sealed && written.contains(&disk) => failures.push(failure),
                Err(_) => {}
            }
        }
        if any_detached {
            // The file of a loop device may have got its last data just then.
            rustix::fs::sync();
        }
        failures.into_iter().next().map_or(Ok(began.elapsed()), Err)
    }
}

/// What became of a disk that was to be flushed.
enum Flushed {
    Yes,
    /// It is another disk by now, or none.
    Detached,
}

/// Empties the write cache of `disk`. A disk that we have no right or no way to open, the
/// run had none to open either. Errors of a disk that a file system has are for its pin to
/// report: a disk that the run has nothing to do with may fail at any time.
fn flush(disk: DeviceId) -> Result<Flushed, Failure> {
    let identity = device::identity(disk);
    let Some(path) = device::node(disk) else { return Ok(Flushed::Yes) };
    let flushed = match open(&path, OFlags::empty()) {
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NXIO | Errno::NODEV) => Ok(()),
        Err(Errno::NOMEDIUM) => Ok(()),
        Err(error) => Err(error),
        // A loop device without a file answers with an error.
        Ok(disk) if is_empty(&disk) => Ok(()),
        Ok(disk) => rustix::fs::fsync(disk),
    };
    if device::identity(disk) != identity {
        return Ok(Flushed::Detached);
    }
    match flushed {
        Err(error) if !is_claimed(&path) => Err(Failure::Disk(path, error.into())),
        _ => Ok(Flushed::Yes),
    }
}

fn is_empty(disk: &OwnedFd) -> bool {
    rustix::fs::seek(disk, SeekFrom::End(0)) == Ok(0)
}

/// Whether a mounted file system of any mount namespace, swap or another driver has the disk
/// at `path`, or a partition of it: then the kernel gives it to nobody else (`O_EXCL` in
/// open(2)).
fn is_claimed(path: &Path) -> bool {
    matches!(open(path, OFlags::EXCL), Err(Errno::BUSY))
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let usual = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, usual | flags, Mode::empty())
}
