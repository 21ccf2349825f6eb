//! A disk that makes the sync(2) of other processes wait.
//!
//! sync(2) writes out each file system of the machine in the order in which they were mounted
//! (iterate_supers in fs/super.c). A dirty page on a disk whose writes hang therefore keeps
//! every sync(2) from the disks that are mounted later.

use super::locks::{DiskLock, without_stalls};
use crate::patiently;
use crate::rig::{Fault, Rig};
use rustix::mount::{UnmountFlags, unmount};
use std::fs::File;
use std::io::Write;
use std::time::Duration;

/// After this time the barrier of a killed test lets every sync(2) go on.
const LIMIT: Duration = Duration::from_secs(60);

/// While this value exists, no sync(2) reaches a disk that was mounted after it was made.
#[must_use]
pub struct Barrier {
    /// A file with a dirty page; the only user of the file system, which is mounted nowhere.
    dirty: Option<File>,
    rig: Rig,
    _lock: DiskLock,
}

/// Makes every sync(2) of the machine wait until the returned value is dropped. Call this before
/// making the rig that no foreign sync(2) may reach. The test itself must not call sync(2), nor
/// start a run that does: one that commits a held sync(), or a sealed one. No test with
/// [`stall`](super::stall) or [`without_stalls`] runs beside it.
pub fn without_foreign_syncs() -> Barrier {
    let lock = without_stalls();
    // Lets each sync(2) end that an earlier barrier stopped: it would also stop at this barrier,
    // because a sync(2) visits each file system several times.
    rustix::fs::sync();
    let builder = Rig::builder().size(16 << 20).passthrough(false).mount_options("commit=300");
    let rig = builder.up().expect("a rig is set up");
    let mut dirty = File::create(rig.path().join("dirty")).expect("a file on the rig");
    let fault = Fault::writes().hanging().lasting(patiently(LIMIT));
    rig.disk().fail(fault).expect("the rig answers");
    dirty.write_all(b"dirty").expect("a write to the page cache");
    // No run in this namespace finds the disk.
    unmount(rig.path(), UnmountFlags::DETACH).expect("the rig is mounted");
    Barrier { dirty: Some(dirty), rig, _lock: lock }
}

impl Barrier {
    /// Returns the disk on which every sync(2) waits.
    pub fn rig(&self) -> &Rig {
        &self.rig
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        // The last user of the file system leaves it when its writes succeed.
        let _ = self.rig.disk().recover();
        drop(self.dirty.take());
    }
}
