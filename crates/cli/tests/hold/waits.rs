//! A verb that waits for another command of the hold: it says so, and a signal ends it.

use crate::crashes::interrupted;
use crate::support::{HoldOnRig, with_hold};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process;
use synconce_testkit::harness::{StartedCommand, eventually, kill};

/// The lock of the hold.
const OF_HOLD: &str = "runtime/holds/t.lock";

/// Locks the file `name` as another command does.
fn lock(fixture: &HoldOnRig<'_>, name: &str) -> File {
    let lock = File::open(fixture.place.path(name)).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    lock
}

/// Starts `verb`, which may have a command behind it. It says that it waits for the lock of `what`.
fn waiting(fixture: &HoldOnRig<'_>, verb: &str, what: &str) -> StartedCommand {
    let (verb, command) = verb.split_once(' ').unwrap_or((verb, ""));
    let words = ["hold", verb, "./t.toml"].into_iter().chain(command.split_whitespace());
    let process = StartedCommand::new(&mut fixture.place.synconce(&words.collect::<Vec<_>>()));
    let said = format!("waiting for the lock of the {what}");
    eventually("it says that it waits", || process.text().contains(&said));
    process
}

/// Runs `verb` while another command has the lock of the hold; `unchanged` is true until the
/// lock is released.
fn waits(fixture: &HoldOnRig<'_>, verb: &str, unchanged: impl Fn() -> bool) {
    let lock = lock(fixture, OF_HOLD);
    let process = waiting(fixture, verb, "hold t, which ");
    assert!(unchanged(), "{verb}");
    drop(lock);
    assert_eq!(process.end().code(), Some(0), "{verb}: {}", process.text());
    assert!(!unchanged(), "{verb}");
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let owner = format!("which {} (pid {}) has\n", name.trim_end(), process::id());
    assert!(process.text().contains(&owner), "{verb}: {}", process.text());
    assert_eq!(process.text().matches("waiting").count(), 1, "{verb}: {}", process.text());
}

#[test]
fn each_verb_waits_for_other_commands_of_the_hold_and_names_their_process() {
    with_hold("after_crash = \"wipe\"\n", |_, fixture| {
        interrupted(fixture, "old");
        waits(fixture, "recover", || fixture.file().exists());
        let marker = fixture.place.path("state/holds/t.json");
        waits(fixture, "start", || !marker.exists());
        fs::write(fixture.directory().join("data"), "new").unwrap();
        waits(fixture, "settle", || fixture.everything().contains(".synconce-aside"));
        waits(fixture, "stop", || marker.exists());
    });
}

#[test]
fn a_signal_ends_a_verb_that_waits_and_changes_nothing() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        fixture.ok("stop");
        let disk = format!("runtime/holds/{}.disk", fixture.rig.path().metadata().unwrap().dev());
        let before = fixture.everything();
        let waits = [
            (OF_HOLD, "hold t", &["start", "stop", "recover", "run -- true"][..]),
            (&*disk, "disk of ", &["start", "run -- true"]),
        ];
        for (name, what, verbs) in waits {
            let lock = lock(fixture, name);
            let inode = format!(":{} ", lock.metadata().unwrap().ino());
            let is_awaited = || {
                let locks = fs::read_to_string("/proc/locks").unwrap();
                locks.lines().any(|line| line.contains("->") && line.contains(&inode))
            };
            for verb in verbs {
                // Ctrl-C reaches the whole group, a service manager's signal maybe not.
                let process = waiting(fixture, verb, what);
                process.signal(Signal::INT).unwrap();
                assert_eq!(process.end().signal(), Some(Signal::INT.as_raw()), "{what} {verb}");
                let process = waiting(fixture, verb, what);
                kill(process.pid(), Signal::TERM);
                assert_eq!(process.end().signal(), Some(Signal::TERM.as_raw()), "{what} {verb}");
                eventually("no process waits", || !is_awaited());
            }
        }
        assert_eq!(fixture.everything(), before);
        assert!(!place.path("state/holds/t.json").exists());
        fixture.ok("start");
        fixture.ok("stop");
    });
}
