//! What a recovery does not do after an unclean end: it does not run beside another command of
//! the hold, and it does not give up files that it has not seen.

use crate::recovery::interrupted;
use crate::support::Fixture;
use rustix::fs::{FlockOperation, flock};
use std::fs;
use synconce_testkit::harness::{Started, eventually, isolated};

/// Runs `verb` while another command has the lock of the hold; `unchanged` is true until the
/// lock is released.
fn waits(fixture: &Fixture<'_>, verb: &str, unchanged: impl Fn() -> bool) {
    let lock = fs::File::open(fixture.place.path("runtime/holds/t.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let process = Started::new(&mut fixture.place.synconce(&["hold", verb, "./t.toml"]));
    // /proc/locks names each process that waits (proc_locks(5)).
    let is_waiting = |line: &str| {
        line.contains("-> FLOCK")
            && line.split_whitespace().any(|word| word == process.pid().to_string())
    };
    eventually("it waits for the lock", || {
        fs::read_to_string("/proc/locks").unwrap().lines().any(is_waiting)
    });
    assert!(unchanged(), "{verb}");
    drop(lock);
    assert_eq!(process.end().code(), Some(0), "{verb}: {}", process.text());
    assert!(!unchanged(), "{verb}");
}

#[test]
fn recover_and_settle_wait_for_other_commands_of_the_hold() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        interrupted(&fixture, "old");
        waits(&fixture, "recover", || fixture.file().exists());
        fixture.ok("start");
        waits(&fixture, "settle", || fixture.everything().contains(".synconce-aside"));
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}
