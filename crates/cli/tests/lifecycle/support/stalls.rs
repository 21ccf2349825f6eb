//! Disks whose flushes do not end or fail, and tests that must not run beside them: sync(2)
//! waits for every disk of the machine and makes its own flushes there.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use synconce_testkit::rig::Rig;

/// A lock that is held while a disk is stalled, or while no disk may be.
#[must_use]
pub struct Turn {
    _lock: File,
}

const STALLS: &str = "synconce-tests-stall";
const FAILURES: &str = "synconce-tests-failures";

impl Turn {
    fn take(name: &str, how: FlockOperation) -> Self {
        // One lock for all test runs of the machine, which share its disks.
        let path = std::env::temp_dir().join(name);
        let lock = File::options().append(true).create(true).open(path).expect("a lock file");
        flock(&lock, how).expect("a lock");
        Self { _lock: lock }
    }
}

/// Stalls every flush of `rig` until it is released. No test that calls sync(2) runs while the
/// turn is held.
pub fn stall(rig: &Rig) -> Turn {
    let turn = Turn::take(STALLS, FlockOperation::LockShared);
    rig.disk().stall_flushes().expect("the rig answers");
    turn
}

/// Waits until no disk is stalled by a test. No disk is stalled while the turn is held.
pub fn without_stalls() -> Turn {
    Turn::take(STALLS, FlockOperation::LockExclusive)
}

/// Waits until no test has a failing disk that is not mounted. Every test holds this turn.
pub(super) fn among_others() -> Turn {
    Turn::take(FAILURES, FlockOperation::LockShared)
}

/// Waits until no other test runs: a failing disk that is not mounted fails every sealed run
/// of the machine.
pub(super) fn alone() -> Turn {
    Turn::take(FAILURES, FlockOperation::LockExclusive)
}
