//! The next owner takes down the rig of a killed owner, and nothing else.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use synconce_sys::procfs;
use synconce_testkit::harness::{children, process_status};
use synconce_testkit::patiently;
use synconce_testkit::rig::{self, Cut, Rig};

/// Set in the process that will be killed.
const VICTIM: &str = "SYNCONCE_TEST_RIG_VICTIM";
/// Whether data bypasses the daemon of the rig of that process.
const PASSTHROUGH: &str = "SYNCONCE_TEST_RIG_PASSTHROUGH";

/// Starts this test program with only the test that sets a rig up and waits to be killed.
fn victim() -> (Child, PathBuf) {
    victim_that("an_owner_waits_to_be_killed")
}

fn victim_that(waits: &str) -> (Child, PathBuf) {
    started(waits, &mut Command::new(std::env::current_exe().unwrap()))
}

/// Starts `command`, which executes this test program with the added arguments.
fn started(waits: &str, command: &mut Command) -> (Child, PathBuf) {
    command.args(["--ignored", "--exact", waits, "--nocapture", "--test-threads", "1"]);
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
    let passthrough = std::env::var(PASSTHROUGH).map_or(Ok(true), |text| text.parse());
    let rig = Rig::builder().passthrough(passthrough.unwrap()).up().unwrap();
    std::fs::write(rig.path().join("dirty"), "not synced").unwrap();
    println!("mounted at {}", rig.path().display());
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "the process that the other tests kill"]
fn an_owner_of_a_tape_and_a_replay_waits_to_be_killed() {
    if std::env::var_os(VICTIM).is_none() {
        panic!("only the other tests start this one: it waits for ever");
    }
    let rig = Rig::builder().record(true).up().unwrap();
    std::fs::write(rig.path().join("file"), "recorded").unwrap();
    let tape = rig.finish().unwrap();
    let replay = tape.replay().up().unwrap();
    let disk = replay.mounted(Cut::at(0)).unwrap();
    println!("files {} {}", tape.base.display(), tape.log.display());
    println!("mounted at {}", disk.path().display());
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "the process that the other tests kill"]
fn an_owner_that_waits_for_a_frozen_rig_waits_to_be_killed() {
    if std::env::var_os(VICTIM).is_none() {
        panic!("only the other tests start this one: it waits for ever");
    }
    let rig = Rig::builder().up().unwrap();
    assert!(Command::new("fsfreeze").arg("-f").arg(rig.path()).status().unwrap().success());
    println!("mounted at {}", rig.path().display());
    // No signal ends this.
    let _ = std::fs::File::create(rig.path().join("new"));
}

/// Returns the files of a process's rigs that are left in memory.
fn files_of(process: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.path());
    let prefix = format!("/dev/shm/synconce-rig-{process}-");
    entries.filter(|path| path.to_str().is_some_and(|path| path.starts_with(&prefix))).collect()
}

#[test]
fn the_tape_and_the_replay_of_a_killed_owner_are_reaped() {
    let (dead, left) = victim_that("an_owner_of_a_tape_and_a_replay_waits_to_be_killed");
    let process = dead.id();
    assert_eq!(files_of(process).len(), 3, "base, log and what the replay has written");
    kill(dead);
    rig::reap().unwrap();
    assert_reaped(&left);
    let limit = Instant::now() + patiently(Duration::from_secs(60));
    while !files_of(process).is_empty() {
        assert!(Instant::now() < limit, "{:?} are still there", files_of(process));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn only_rigs_of_ended_owners_are_reaped() {
    let (dead, left) = victim();
    let (alive, kept) = victim();
    let summary = rig::find(&left).unwrap().summary();
    assert!(!summary.stale);
    kill(dead);
    // Another test or program that sets up a rig may have reaped this one by now.
    assert!(rig::find(&left).is_ok_and(|entry| entry.summary().stale) || !is_mounted(&left));

    rig::reap().unwrap();
    assert_reaped(&left);
    assert!(rig::find(&left).is_err());
    let daemon = format!("/proc/{}/cmdline", summary.daemon.unwrap());
    let command = std::fs::read_to_string(daemon).unwrap_or_default();
    let record = left.parent().unwrap().to_str().unwrap();
    assert!(!command.contains(record), "the daemon still runs: {command}");
    assert!(is_mounted(&kept));

    kill(alive);
    // The next rig of any process reaps as well.
    let _next = Rig::builder().up().unwrap();
    assert_reaped(&kept);
}

/// Waits until the rig is reaped. Every process that sets up a rig reaps, so another test may
/// be reaping this rig already; this process's own reaping then finds nothing to do and
/// returns before the other one is done.
fn assert_reaped(place: &Path) {
    let record = place.parent().unwrap();
    let limit = Instant::now() + patiently(Duration::from_secs(60));
    while is_mounted(place) || record.exists() {
        assert!(Instant::now() < limit, "{} is still there", place.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_rig_that_its_owner_leaves_up_while_a_reaper_looks_at_it_is_not_reaped() {
    let rig = Rig::builder().up().unwrap();
    let place = rig.path().to_owned();
    // The reaper has read the record when it opens the lock.
    let lock = place.parent().unwrap().join("owner.lock");
    let trace = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace.arg("-f").arg("-o").arg(trace.path()).arg("-P").arg(lock);
    strace.args(["-e", "inject=openat:signal=STOP:when=1", env!("CARGO_BIN_EXE_rig"), "reap"]);
    let mut strace = strace.stdin(Stdio::null()).spawn().unwrap();
    let limit = Instant::now() + patiently(Duration::from_secs(60));
    let reaper = loop {
        let text = std::fs::read_to_string(trace.path()).unwrap();
        let stopped = text.lines().find(|line| line.ends_with("--- stopped by SIGSTOP ---"));
        if let Some(pid) = stopped.and_then(|line| line.split(' ').next()) {
            break pid.to_owned();
        }
        assert!(Instant::now() < limit, "{text}");
        std::thread::sleep(Duration::from_millis(20));
    };
    rig.keep().unwrap();
    assert!(Command::new("kill").args(["-CONT", &reaper]).status().unwrap().success());
    assert!(strace.wait().unwrap().success());
    assert!(is_mounted(&place));
    let down = Command::new(env!("CARGO_BIN_EXE_rig")).arg("down").arg(&place).status().unwrap();
    assert!(down.success());
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

/// Returns the file of the loop device `name`, as the kernel shows it; empty if the device is
/// free.
fn file_of(name: &str) -> String {
    let path = format!("/sys/block/{name}/loop/backing_file");
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Returns the name of the loop device on a file below `directory`.
fn device_below(directory: &Path) -> String {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let mut names = devices.map(|device| device.file_name().into_string().unwrap());
    names.find(|name| Path::new(&file_of(name)).starts_with(directory)).expect("a loop device")
}

/// Returns this program in a mount and a pid namespace of its own, with its rigs in `records`.
fn in_namespaces(records: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
    command.arg("--mount-proc").arg(std::env::current_exe().unwrap());
    command.env("SYNCONCE_RIG_DIR", records);
    command
}

/// Waits until the loop device `name` is free of its file below `records`, and calls `each` again
/// and again meanwhile.
fn assert_detached(name: &str, records: &Path, each: impl Fn()) {
    let limit = Instant::now() + patiently(Duration::from_secs(20));
    // Once the FUSE mount is gone, the kernel shows the path within the FUSE file system.
    let attached = |file: &str| file == "/disk" || Path::new(file).starts_with(records);
    while attached(&file_of(name)) {
        assert!(Instant::now() < limit, "{name} is attached to {}", file_of(name));
        each();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reaps the rigs in `records`, of which nothing is left then.
fn reap_in(records: &Path) {
    let mut reap = Command::new(env!("CARGO_BIN_EXE_rig"));
    let reaped = reap.arg("reap").env("SYNCONCE_RIG_DIR", records).output().unwrap();
    assert!(reaped.status.success(), "{reaped:?}");
    assert_eq!(std::fs::read_dir(records).unwrap().count(), 0, "the record is left");
}

/// The process, the daemon and `unshare` end in any order, and the namespace with the last of
/// them.
#[test]
fn a_rig_whose_mount_namespace_ends_leaves_nothing_but_files() {
    for passthrough in [true, false] {
        // The loop device is found by the directory of its records.
        let records = tempfile::tempdir().unwrap();
        let mut command = in_namespaces(records.path());
        command.env(PASSTHROUGH, passthrough.to_string());
        let (outer, _) = started("an_owner_waits_to_be_killed", &mut command);
        let device = device_below(records.path());
        kill(outer);
        assert_detached(&device, records.path(), || {});
        reap_in(records.path());
    }
}

/// Waits until a thread of the child of `process` waits for a frozen file system (state D of
/// proc_pid_stat(5)).
fn wait_for_frozen(process: u32) {
    let limit = Instant::now() + patiently(Duration::from_secs(20));
    let [(child, _)] = children(process)[..] else { panic!("{process} has no child") };
    let waits = |thread: u32| process_status(thread)["State"].starts_with('D');
    while !procfs::threads(child).any(waits) {
        assert!(Instant::now() < limit, "no thread of {child} waits");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// No signal ends the process, so its mount namespace stays.
#[test]
fn a_frozen_rig_of_a_killed_owner_is_thawed() {
    let records = tempfile::tempdir().unwrap();
    let waits = "an_owner_that_waits_for_a_frozen_rig_waits_to_be_killed";
    let (outer, _) = started(waits, &mut in_namespaces(records.path()));
    let device = device_below(records.path());
    // Killed before that wait, the process would end, and its mount namespace with it.
    wait_for_frozen(outer.id());
    kill(outer);
    assert_detached(&device, records.path(), || drop(rig::reap().unwrap()));
    reap_in(records.path());
}

/// In the other namespace the owner's pid means no process, or another one.
#[test]
fn a_rig_of_an_owner_in_another_pid_namespace_is_reaped_only_after_its_end() {
    let records = tempfile::tempdir().unwrap();
    let reap = |command: &mut Command| {
        let reaped = command.arg("reap").env("SYNCONCE_RIG_DIR", records.path()).output().unwrap();
        assert!(reaped.status.success(), "{reaped:?}");
        std::fs::read_dir(records.path()).unwrap().count()
    };
    let rig = env!("CARGO_BIN_EXE_rig");
    let inside = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", rig];
    let mut owner = Command::new(std::env::current_exe().unwrap());
    let (owner, place) =
        started("an_owner_waits_to_be_killed", owner.env("SYNCONCE_RIG_DIR", records.path()));
    let left = reap(Command::new("unshare").args(inside));
    let stays = is_mounted(&place);
    kill(owner);
    assert!(left == 1 && stays, "{left} records are left");
    assert_eq!(reap(&mut Command::new(rig)), 0);
    assert!(!is_mounted(&place));
}
