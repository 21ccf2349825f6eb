//! What a killed owner leaves, the next one takes down, and nothing else.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use synconce_testkit::rig::{self, Rig};

/// Set in the process that is to be killed.
const VICTIM: &str = "SYNCONCE_TEST_RIG_VICTIM";

/// This test program, running only the test that sets a rig up and waits for its death.
fn victim() -> (Child, PathBuf) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--ignored",
        "--exact",
        "an_owner_waits_to_be_killed",
        "--nocapture",
        "--test-threads",
        "1",
    ]);
    let mut child = command.env(VICTIM, "1").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let path =
        lines.map_while(Result::ok).find_map(|line| Some(line.split_once("mounted at ")?.1.into()));
    (child, path.expect("the victim says where its rig is"))
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.contains(path.parent().unwrap().to_str().unwrap())
}

#[test]
#[ignore = "the process that the other tests kill"]
fn an_owner_waits_to_be_killed() {
    if std::env::var_os(VICTIM).is_none() {
        panic!("only the other tests start this one: it waits for ever");
    }
    let rig = Rig::builder().up().unwrap();
    std::fs::write(rig.path().join("dirty"), "not synced").unwrap();
    println!("mounted at {}", rig.path().display());
    loop {
        std::thread::park();
    }
}

#[test]
fn the_rig_of_a_killed_owner_is_reaped_and_those_of_the_living_are_not() {
    let (dead, left) = victim();
    let (alive, kept) = victim();
    let summary = rig::find(&left).unwrap().summary();
    assert!(!summary.stale);
    kill(dead);
    assert!(is_mounted(&left), "nobody has taken it down yet");
    assert!(rig::find(&left).unwrap().summary().stale);

    rig::reap().unwrap();
    assert_reaped(&left);
    assert!(rig::find(&left).is_err());
    let daemon = format!("/proc/{}/cmdline", summary.daemon.unwrap());
    let command = std::fs::read_to_string(daemon).unwrap_or_default();
    assert!(!command.contains("serve"), "the daemon still runs: {command}");
    assert!(is_mounted(&kept));

    kill(alive);
    // The next rig of anyone reaps as well.
    let _next = Rig::builder().up().unwrap();
    assert_reaped(&kept);
}

/// Whoever sets up a rig reaps, so another test may be at it already: then our
/// own reaping finds nothing left to do, and returns before theirs is done.
fn assert_reaped(place: &Path) {
    let record = place.parent().unwrap();
    let limit = Instant::now() + Duration::from_secs(20);
    while is_mounted(place) || record.exists() {
        assert!(Instant::now() < limit, "{} is still there", place.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_rig_whose_daemon_was_killed_is_reaped() {
    let (dead, left) = victim();
    let daemon = rig::find(&left).unwrap().summary().daemon.unwrap();
    let killed = Command::new("kill").args(["-KILL", &daemon.to_string()]).status().unwrap();
    assert!(killed.success());
    kill(dead);
    rig::reap().unwrap();
    assert_reaped(&left);
}
