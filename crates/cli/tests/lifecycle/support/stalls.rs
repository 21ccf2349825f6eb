//! Disks whose flushes have no end or fail, and tests that must not meet one: sync(2)
//! waits for every disk of the machine, and has flushes of its own there.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use synconce_testkit::rig::Rig;

/// Held while a disk is stalled, or while none may be.
#[must_use]
pub struct Turn {
    _lock: File,
}

const STALLS: &str = "synconce-tests-stall";
const FAILURES: &str = "synconce-tests-failures";

impl Turn {
    fn take(name: &str, how: FlockOperation) -> Self {
        // One for all test runs of the machine, which share its disks.
        let path = std::env::temp_dir().join(name);
        let lock = File::options().append(true).create(true).open(path).expect("a lock file");
        flock(&lock, how).expect("a lock");
        Self { _lock: lock }
    }
}

/// Lets every flush of `rig` wait until it is released; no test of sync(2) runs
/// before the end of the turn.
pub fn stall(rig: &Rig) -> Turn {
    let turn = Turn::take(STALLS, FlockOperation::LockShared);
    rig.disk().stall_flushes().expect("the rig answers");
    turn
}

/// Waits until no disk is stalled by a test; none is before the end of the turn.
pub fn without_stalls() -> Turn {
    Turn::take(STALLS, FlockOperation::LockExclusive)
}

/// Waits until no test has a disk that fails and is not mounted; every test holds it.
pub(super) fn among_others() -> Turn {
    Turn::take(FAILURES, FlockOperation::LockShared)
}

/// Waits until no other test runs: a disk that fails and is not mounted fails every sealed
/// run of the machine.
pub(super) fn alone() -> Turn {
    Turn::take(FAILURES, FlockOperation::LockExclusive)
}
