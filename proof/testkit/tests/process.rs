//! Commands and their descendants end when their handle is dropped.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use synconce_testkit::patiently;
use synconce_testkit::process::{Group, run};

const LONG: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Waits until `pid` has exited: a drop only waits for the command itself, and other killed
/// processes take a moment.
fn ends(pid: &str) -> bool {
    let start = Instant::now();
    while runs(pid) && start.elapsed() < patiently(LONG) {
        std::thread::sleep(Duration::from_millis(5));
    }
    !runs(pid)
}

#[test]
fn output_and_exit_code_are_captured() {
    let finished = run(&mut shell("echo out; echo err >&2; exit 7"), patiently(LONG)).unwrap();
    assert_eq!(finished.status.code(), Some(7));
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn death_by_a_signal_is_reported_as_that_signal() {
    let finished = run(&mut shell("kill -TERM $$"), patiently(LONG)).unwrap();
    assert_eq!(finished.status.signal(), Some(libc::SIGTERM));
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_its_descendants() {
    let error = run(&mut shell("sleep 100 & echo $!; wait"), Duration::from_millis(300))
        .unwrap_err()
        .to_string();
    assert!(error.contains("longer than 300ms"), "{error}");
    let sleeper = error.split("stdout: ").nth(1).unwrap().lines().next().unwrap();
    assert!(ends(sleeper), "{sleeper} still runs");
}

#[test]
fn a_descendant_that_keeps_stdout_open_does_not_delay_the_end() {
    let finished = run(&mut shell("sleep 100 & echo $!"), patiently(LONG)).unwrap();
    assert!(finished.elapsed < patiently(LONG));
    assert!(ends(&finished.stdout), "it outlived the handle");
}

#[test]
fn a_dropped_group_leaves_no_process() {
    let group = Group::spawn(&mut shell("sleep 100 & echo $!; wait")).unwrap();
    let start = Instant::now();
    while !group.stdout().unwrap().ends_with('\n') && start.elapsed() < patiently(LONG) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let sleeper = group.stdout().unwrap();
    assert!(runs(&sleeper));
    assert_eq!(group.wait(Duration::from_millis(10)).unwrap(), None);
    drop(group);
    assert!(ends(&sleeper));
}
