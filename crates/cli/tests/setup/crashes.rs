//! A set-up or an undo is killed at each call that changes a file. The next command finishes it or
//! undoes it: every byte is then as it has to be.

use super::place::{EndedCommand, SYNCONCE, TestRoot};
use std::process::Command;

/// The calls of a set-up or an undo that change a file system.
pub const CALLS: [&str; 10] = [
    "mkdirat",
    "openat",
    "fchmod",
    "write",
    "fsync",
    "renameat",
    "renameat2",
    "symlinkat",
    "unlinkat",
    "fchown",
];

/// Runs `synconce setup WORDS`, killed at its `nth` call of the kind `call`; returns whether
/// there was such a call.
pub fn killed(place: &TestRoot, words: &[&str], call: &str, nth: u32) -> bool {
    let inject = format!("inject={call}:signal=KILL:when={nth}");
    let mut command = Command::new("strace");
    command.args(["-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    command.env("SYNCONCE_RUNTIME_DIR", place.root.join("var/run-files"));
    let ended = EndedCommand::run(command.arg(SYNCONCE).args(place.arguments(words)));
    if ended.code == Some(0) {
        return false;
    }
    // strace ends by the same signal as its tracee.
    assert_eq!(ended.code, None, "{ended:?}");
    true
}

/// Slow: runs one set-up below strace for each call that changes a file.
#[test]
fn a_set_up_that_is_killed_at_any_call_is_undone_to_the_byte() {
    let place = TestRoot::new("killed");
    let before = place.snapshot();
    let mut kills = 0;
    for call in CALLS {
        for nth in 1.. {
            if !killed(&place, &["docker"], call, nth) {
                break;
            }
            kills += 1;
            let undone = place.setup(&["docker", "--undo"]);
            assert_eq!(undone.code, Some(0), "{call} {nth}: {undone:?}");
            assert_eq!(before, place.snapshot(), "{call} {nth}");
        }
        assert_eq!(place.setup(&["docker", "--undo"]).code, Some(0));
        assert_eq!(before, place.snapshot(), "{call}");
    }
    assert!(kills > 30, "only {kills} kills");
}

#[test]
fn a_set_up_that_is_killed_at_any_call_is_finished_by_the_next() {
    let place = TestRoot::new("finished");
    let before = place.snapshot();
    assert_eq!(place.setup(&["docker"]).code, Some(0));
    let after = place.snapshot();
    place.setup(&["docker", "--undo"]);
    for call in ["fsync", "renameat", "renameat2", "symlinkat"] {
        for nth in 1.. {
            if !killed(&place, &["docker"], call, nth) {
                break;
            }
            assert_eq!(place.setup(&["docker"]).code, Some(0), "{call} {nth}");
            assert_eq!(after, place.snapshot(), "{call} {nth}");
            assert_eq!(place.setup(&["docker", "--undo"]).code, Some(0), "{call} {nth}");
            assert_eq!(before, place.snapshot(), "{call} {nth}");
        }
        place.setup(&["docker", "--undo"]);
    }
}

#[test]
fn an_edit_after_a_set_up_that_was_killed_before_it_came_to_the_file_is_kept() {
    let edited = "{\n  \"debug\": false\n}\n";
    let mut kills = 0;
    for nth in 1.. {
        for words in [&["docker", "--undo"][..], &["docker", "--undo", "--force"], &["docker"]] {
            let place = TestRoot::new(&format!("edited-{nth}-{}", words.len()));
            if !killed(&place, &["docker"], "fsync", nth) {
                assert!(kills > 2, "only {kills} kills");
                return;
            }
            kills += 1;
            let came_to_it = place.read("etc/docker/daemon.json").contains("synconce");
            if came_to_it {
                continue;
            }
            place.write("etc/docker/daemon.json", edited);
            let ended = place.setup(words);
            assert_eq!(ended.code, Some(0), "{nth}: {ended:?}");
            assert_eq!(place.setup(&["docker", "--undo"]).code, Some(0));
            assert_eq!(place.read("etc/docker/daemon.json"), edited, "{nth}");
        }
    }
}

#[test]
fn an_undo_that_is_killed_at_any_call_is_finished_by_the_next() {
    let place = TestRoot::new("undoing");
    let before = place.snapshot();
    for call in CALLS {
        for nth in 1.. {
            assert_eq!(place.setup(&["docker"]).code, Some(0), "{call} {nth}");
            if !killed(&place, &["docker", "--undo"], call, nth) {
                break;
            }
            assert_eq!(place.setup(&["docker", "--undo"]).code, Some(0), "{call} {nth}");
            assert_eq!(before, place.snapshot(), "{call} {nth}");
        }
    }
}

#[test]
fn the_journal_is_durable_before_the_first_file_is_touched() {
    let place = TestRoot::new("order");
    let log = place.root.join("log");
    let mut command = Command::new("strace");
    command.args(["-y", "-e", "trace=fsync,renameat,renameat2,symlinkat,mkdirat", "-o"]);
    let ended =
        EndedCommand::run(command.arg(&log).arg(SYNCONCE).args(place.arguments(&["docker"])));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let log = std::fs::read_to_string(log).unwrap();
    let calls: Vec<&str> = log.lines().collect();
    let at = |from: usize, call: &str, part: &str| {
        let found =
            calls[from..].iter().position(|line| line.starts_with(call) && line.contains(part));
        from + found.unwrap_or_else(|| panic!("no {call} {part} after {from} in\n{log}"))
    };
    let written = at(0, "fsync", "journal.json");
    let named = at(written, "renameat2", "journal.json");
    let durable = at(named, "fsync", "setup/docker>");
    let is_config = |line: &&str| line.contains("/etc/") || line.contains("/usr/");
    let first = calls.iter().position(is_config).unwrap();
    assert!(durable < first, "{log}");
}
