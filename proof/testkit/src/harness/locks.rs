//! Disks whose flushes do not end or fail, and tests that must not run beside them: sync(2)
//! waits for every disk of the machine and makes its own flushes there.

use crate::rig::Rig;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;

/// A lock that is held while a disk is stalled, or while no disk may be.
#[must_use]
pub struct DiskLock {
    _lock: File,
}

const STALLS: &str = "synconce-tests-stall";
const FAILURES: &str = "synconce-tests-failures";

impl DiskLock {
    fn take(name: &str, how: FlockOperation) -> Self {
        // One lock for all test runs of the machine, which share its disks.
        let path = std::env::temp_dir().join(name);
        let open =
            |path| File::options().append(true).create(true).open(path).expect("a lock file");
        let (lock, queue) = (open(path.clone()), open(path.with_extension("queue")));
        // The next one waits in the queue: shared locks, which follow each other without a gap,
        // would otherwise keep an exclusive one away.
        flock(&queue, FlockOperation::LockExclusive).expect("a place in the queue");
        flock(&lock, how).expect("a lock");
        Self { _lock: lock }
    }
}

/// Waits until no test calls sync(2), and keeps such tests away while the lock is held. For a test
/// whose data must still be in memory when it stalls the disk: the sync(2) of another test writes
/// them, too.
pub fn before_stall() -> DiskLock {
    DiskLock::take(STALLS, FlockOperation::LockShared)
}

/// Stalls every flush of `rig` until it is released. No test that calls sync(2) runs while the
/// lock is held.
pub fn stall(rig: &Rig) -> DiskLock {
    let lock = before_stall();
    rig.disk().stall_flushes().expect("the rig answers");
    lock
}

/// Waits until no disk is stalled by a test. No disk is stalled while the lock is held.
pub fn without_stalls() -> DiskLock {
    DiskLock::take(STALLS, FlockOperation::LockExclusive)
}

/// Waits until no test has a failing disk that is not mounted. Every test holds this lock.
pub(super) fn shared() -> DiskLock {
    DiskLock::take(FAILURES, FlockOperation::LockShared)
}

/// Whether a test can have the lock of [`exclusive`] now.
pub(super) fn is_alone() -> bool {
    let path = std::env::temp_dir().join(FAILURES);
    let lock = File::options().append(true).create(true).open(path).expect("a lock file");
    flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Waits until no other test runs: a failing disk that is not mounted fails every sealed run
/// of the machine.
pub(super) fn exclusive() -> DiskLock {
    DiskLock::take(FAILURES, FlockOperation::LockExclusive)
}
