//! The sync of what no pin covers: file systems on which no descriptor can be opened, and block
//! devices that are written without a file system.

use crate::mutant;
use crate::synced::{SyncFailure, Synced};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;
use synconce_probe::device::{self, Writes};
use synconce_probe::mounts::DeviceId;

/// One sync(2) followed by a flush of disks.
///
/// sync(2) writes back every file system and every block device of the machine, but does not
/// flush the write cache of a disk that was written without a file system (Linux 6.18,
/// `ksys_sync` in fs/sync.c). It reports no errors, and in a container it reaches the whole
/// host.
#[derive(Debug)]
pub struct Everything {
    written_before: Writes,
    is_sealed: bool,
}

impl Everything {
    /// Returns the sync of a supervised run, which flushes each disk that was written since
    /// `written_before`, a count from before the run. Errors of a flush are ignored: the sync(2)
    /// that was held would have reported none.
    pub fn for_supervised(written_before: Writes) -> Self {
        Self { written_before, is_sealed: false }
    }

    /// Returns the sync of a sealed run. `written_before` is a count from before the run.
    ///
    /// The run may have held a sync of data that were in a disk's write cache before the run. So
    /// the sync flushes each disk that has been written since the disk was attached. The sync fails
    /// if it cannot flush a disk that was written during the run, unless a file system or another
    /// driver uses the disk.
    pub fn for_sealed(written_before: Writes) -> Self {
        Self { written_before, is_sealed: true }
    }

    /// Calls sync(2) and flushes the disks. Returns the time both took, or the first failure.
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
        // An error does not stop the flushes of the other disks.
        for disk in now.disks_written_since(ever) {
            match flush(disk) {
                Ok(Flushed::Yes) => {}
                Ok(Flushed::Detached) => any_detached = true,
                Err(failure) if self.is_sealed && written.contains(&disk) => failures.push(failure),
                Err(_) => {}
            }
        }
        if any_detached {
            // The file of a detached loop device may just have received its last data.
            rustix::fs::sync();
        }
        failures.into_iter().next().map_or(Ok(began.elapsed()), Err)
    }
}

/// The result of flushing a disk.
enum Flushed {
    /// The disk was flushed, or its errors do not count.
    Yes,
    /// The disk was removed or replaced meanwhile.
    Detached,
}

/// Flushes the write cache of `disk`. Skips a disk without a device file or a medium, and a disk
/// that this user may not open: the run could not open it either. Ignores errors of a disk that a
/// file system uses: the pin of the file system reports those that concern the run.
fn flush(disk: DeviceId) -> Result<Flushed, SyncFailure> {
    let identity = device::identity(disk);
    let Some(path) = device::node(disk) else { return Ok(Flushed::Yes) };
    let flushed = match open(&path, OFlags::empty()) {
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NXIO | Errno::NODEV) => Ok(()),
        Err(Errno::NOMEDIUM) => Ok(()),
        Err(error) => Err(error),
        // A loop device without a file returns an error.
        Ok(disk) if is_empty(&disk) => Ok(()),
        Ok(disk) => rustix::fs::fsync(disk),
    };
    if device::identity(disk) != identity {
        return Ok(Flushed::Detached);
    }
    match flushed {
        Err(error) if !is_claimed(&path) => Err(SyncFailure::Disk(path, error.into())),
        _ => Ok(Flushed::Yes),
    }
}

fn is_empty(disk: &OwnedFd) -> bool {
    rustix::fs::seek(disk, SeekFrom::End(0)) == Ok(0)
}

/// Whether the disk at `path`, or a partition of it, is in use by a mounted file system of any
/// mount namespace, by swap or by another driver: an `O_EXCL` open then fails (open(2)).
fn is_claimed(path: &Path) -> bool {
    matches!(open(path, OFlags::EXCL), Err(Errno::BUSY))
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let usual = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, usual | flags, Mode::empty())
}
