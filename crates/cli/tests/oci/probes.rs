//! Probe containers of `setup --check` in the engines: they find what only a container can
//! find, and leave nothing, also after a signal.

mod dockerd;

use crate::check::{PROBED_POD, PROBED_STEP, assert_nothing_below};
use crate::engines::SOCKET;
use crate::groups::GroupsOfEngines;
use crate::plain;
use crate::set_up::{
    CONTAINERD, CONTAINERD_2, end, install_containerd_2, setup, start_buildkitd, start_containerd,
    system,
};
use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;
use synconce_testkit::harness::{Need, Place, binary, engine, eventually, finish, trial};
use synconce_testkit::patiently;
use synconce_testkit::process::{Finished, Group};

const BUILDKIT_ON_CONTAINERD: [Need; 9] = [
    CONTAINERD_2[0],
    CONTAINERD_2[1],
    CONTAINERD_2[2],
    CONTAINERD_2[3],
    CONTAINERD_2[4],
    CONTAINERD_2[5],
    CONTAINERD_2[6],
    plain::BUILDKIT[0],
    plain::BUILDKIT[1],
];

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial(of_buildkitd_find_a_step_that_is_not_held_and_leave_nothing, &plain::BUILDKIT),
        trial(of_debians_containerd_find_a_pod_that_is_not_held_and_leave_nothing, &CONTAINERD),
        trial(of_containerd_2_find_a_pod_that_is_not_held_and_leave_nothing, &CONTAINERD_2),
        trial(of_buildkitd_on_containerd_are_held_and_leave_nothing, &BUILDKIT_ON_CONTAINERD),
        trial(an_interrupt_does_not_end_their_removal, &plain::BUILDKIT),
        trial(without_a_client_are_none, &plain::BUILDKIT),
        trial(are_none_in_a_dockerd_of_another_host_which_is_named, &[]),
    ];
    trials.extend(dockerd::trials());
    trials
}

/// Runs `setup NAME --check`, by the system's rules.
fn check(place: &Place, name: &str) -> Finished {
    finish(&mut place.synconce(&["setup", name, "--check"]))
}

/// Asserts that a check has the exit code `code` and prints `part`.
fn assert_says(place: &Place, name: &str, code: i32, part: &str) {
    let checked = check(place, name);
    assert_eq!(checked.status.code(), Some(code), "{checked:?}");
    assert!(checked.stderr.contains(part), "{checked:?}");
}

/// Returns what a check prints that gets SIGINT when its client runs, and whether that has ended
/// it.
fn interrupt(place: &Place, name: &str) -> (String, bool) {
    let check = Group::spawn(&mut place.synconce(&["setup", name, "--check"])).unwrap();
    eventually("a client of the check", || has_child(check.pid()));
    check.signal(Signal::INT).unwrap();
    let ended = check.wait(patiently(Duration::from_secs(50))).unwrap().expect("the check goes on");
    (check.stderr().unwrap(), ended.signal() == Some(Signal::INT.as_raw()))
}

/// Asserts that a check that gets SIGINT leaves nothing, and names `left` if the daemon hangs.
fn assert_cancelled(place: &Place, name: &str, daemon: &Group, left: &str) {
    // The check may be done already.
    let (said, is_ended) = interrupt(place, name);
    assert!(is_ended || said.contains(PROBED_STEP) || said.contains(PROBED_POD), "{said}");
    assert!(!said.contains("remove it"), "{said}");
    daemon.signal(Signal::STOP).unwrap();
    let (said, is_ended) = interrupt(place, name);
    assert!(is_ended && said.contains("interrupted by a signal"), "{said}");
    assert!(said.contains(left), "{said}");
    daemon.signal(Signal::CONT).unwrap();
}

fn has_child(pid: u32) -> bool {
    let children = format!("/proc/{pid}/task/{pid}/children");
    fs::read_to_string(children).is_ok_and(|children| !children.is_empty())
}

/// Makes rules of a daemon, which the check does not read, and which do not hold a container.
fn rules(place: &Place) -> std::path::PathBuf {
    place.write("rules.toml", "[[rule]]\nhold = false\n")
}

/// Returns how many records the build cache of buildkitd has.
fn records(place: &Place) -> usize {
    let mut du = place.command(engine("buildctl").unwrap().to_str().unwrap());
    let listed = finish(du.args(["--addr", SOCKET, "du", "--verbose"]));
    assert!(listed.status.success(), "{listed:?}");
    listed.stdout.matches("ID:").count()
}

fn of_buildkitd_on_containerd_are_held_and_leave_nothing(place: &Place) {
    system(place);
    let _groups = GroupsOfEngines::shared();
    install_containerd_2();
    let containerd = start_containerd(place, &[]);
    let file = Path::new("/etc/buildkit/buildkitd.toml");
    fs::create_dir(file.parent().unwrap()).unwrap();
    let text = "[worker.oci]\nenabled = false\n\
                [worker.containerd]\nenabled = true\nsnapshotter = \"native\"\n";
    fs::write(file, text).unwrap();
    setup(place, &["buildkit"]);
    let workers = ["--oci-worker=false", "--containerd-worker=true"];
    let daemon = start_buildkitd(place, &workers, &[]);
    assert_says(place, "buildkit", 0, PROBED_STEP);
    assert_eq!(records(place), 0);
    end(&daemon);
    end(&containerd);
}

fn of_buildkitd_find_a_step_that_is_not_held_and_leave_nothing(place: &Place) {
    system(place);
    let _groups = GroupsOfEngines::shared();
    setup(place, &["buildkit"]);
    let records = || records(place);
    let daemon = start_buildkitd(place, &[], &[]);
    assert_says(place, "buildkit", 0, PROBED_STEP);
    assert_eq!(records(), 0);
    assert_cancelled(
        place,
        "buildkit",
        &daemon,
        "prune --all --filter=description~=synconce-check-",
    );
    assert_says(place, "buildkit", 0, PROBED_STEP);
    eventually("the records of the cut build are gone", || records() == 0);
    end(&daemon);
    drop(daemon);
    let rules = rules(place);
    let daemon = start_buildkitd(place, &[], &[("SYNCONCE_OCI_FILE", &rules)]);
    let real = "synconce: a probe step of buildkitd was not held; restart buildkitd\n";
    assert_says(place, "buildkit", 1, real);
    assert_eq!(records(), 0);
    end(&daemon);
    drop(daemon);
    // Another file than the system's, which the rules do not show.
    let other = place.write("other.toml", "[worker.oci]\nbinary = \"runc\"\n");
    let daemon = start_buildkitd(place, &["--config", other.to_str().unwrap()], &[]);
    assert_says(place, "buildkit", 1, real);
    end(&daemon);
    drop(daemon);
}

fn an_interrupt_does_not_end_their_removal(place: &Place) {
    system(place);
    let _groups = GroupsOfEngines::shared();
    setup(place, &["buildkit"]);
    let daemon = start_buildkitd(place, &[], &[]);
    // A client whose removal takes a second.
    let (usual, real, removes) =
        (engine("buildctl").unwrap(), place.path("buildctl"), place.path("removes"));
    fs::copy(&usual, &real).unwrap();
    let (real, at) = (real.display(), removes.display());
    let script =
        format!("#!/bin/sh\ncase $* in *prune*) touch {at}; sleep 1;; esac\nexec {real} \"$@\"\n");
    let script = place.write("slow", &script);
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    mount_bind(&script, &usual).unwrap();
    let check = Group::spawn(&mut place.synconce(&["setup", "buildkit", "--check"])).unwrap();
    eventually("the removal begins", || removes.exists());
    // As from a terminal: to all processes of the group.
    check.signal(Signal::INT).unwrap();
    let ended = check.wait(patiently(Duration::from_secs(50))).unwrap().expect("the check goes on");
    unmount(&usual, UnmountFlags::DETACH).unwrap();
    // A check that a signal ends prints faults alone.
    assert_eq!(check.stderr().unwrap(), "");
    assert_eq!(ended.signal(), Some(Signal::INT.as_raw()));
    assert_eq!(records(place), 0);
    end(&daemon);
}

fn of_debians_containerd_find_a_pod_that_is_not_held_and_leave_nothing(place: &Place) {
    system(place);
    pods(place);
}

fn of_containerd_2_find_a_pod_that_is_not_held_and_leave_nothing(place: &Place) {
    system(place);
    install_containerd_2();
    pods(place);
}

fn pods(place: &Place) {
    setup(place, &["containerd"]);
    let assert_nothing = || {
        let mut ctr = place.command("/usr/bin/ctr");
        let listed = finish(ctr.args(["namespaces", "ls", "--quiet"]));
        assert!(listed.status.success() && !listed.stdout.contains("check"), "{listed:?}");
        let groups = fs::read_dir("/sys/fs/cgroup").unwrap().map(|it| it.unwrap().path());
        let groups: Vec<_> = groups.map(|path| path.to_string_lossy().into_owned()).collect();
        let mut tops: Vec<_> = groups.iter().map(String::as_str).collect();
        tops.extend(["/var/lib", "/run", "/sys/fs/cgroup"]);
        assert_nothing_below(&tops);
    };
    let daemon = start_containerd(place, &[]);
    assert_says(place, "containerd", 0, PROBED_POD);
    assert_nothing();
    assert_cancelled(place, "containerd", &daemon, "containers rm synconce-check-");
    // The container whose start was cut does not change what the next check finds.
    assert_says(place, "containerd", 0, PROBED_POD);
    end(&daemon);
    drop(daemon);
    let rules = rules(place);
    let daemon = start_containerd(place, &[("SYNCONCE_OCI_FILE", &rules)]);
    let real = "synconce: a probe container that requests a hold was not held; \
                edit /etc/synconce/oci.toml, or restart containerd\n";
    assert_says(place, "containerd", 1, real);
    assert_nothing();
    end(&daemon);
    drop(daemon);
}

fn without_a_client_are_none(place: &Place) {
    system(place);
    setup(place, &["buildkit"]);
    // buildctl is not beside it.
    let alone = Path::new("/usr/local/sbin/buildkitd");
    fs::copy(engine("buildkitd").unwrap(), alone).unwrap();
    let mut daemon = place.command(alone.to_str().unwrap());
    daemon.arg("--root").arg(place.path("root")).args(["--addr", SOCKET]);
    let daemon = Group::spawn(daemon.args(["--containerd-worker=false"])).unwrap();
    let said = "synconce: no probe container was run: buildctl is not installed\n";
    eventually("buildkitd runs", || check(place, "buildkit").stderr.contains(said));
    let checked = check(place, "buildkit");
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(
        checked.stderr.contains("by the files of the set-up, a build step is held, "),
        "{checked:?}"
    );
    end(&daemon);
    drop(daemon);
}

/// As in a job of CI that has Docker's client, and the socket of the host.
fn are_none_in_a_dockerd_of_another_host_which_is_named(place: &Place) {
    system(place);
    let _listener = UnixListener::bind("/run/docker.sock").unwrap();
    let container = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let run = |words: &[&str]| {
        let words = [&container[1..], &[binary(), "setup", "docker"], words].concat();
        finish(place.command(container[0]).args(words))
    };
    let said = "synconce: the dockerd at /var/run/docker.sock runs in another container or on another \
                host; there: synconce setup docker\n";
    let ended = run(&[]);
    assert!(ended.status.success() && ended.stderr.starts_with(said), "{ended:?}");
    let checked = run(&["--check"]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert_eq!(checked.stderr.matches(said).count(), 1, "{checked:?}");
    assert!(!checked.stderr.contains("not running"), "{checked:?}");
    // Here the process that listens is seen, as that of a socket of systemd.
    let here = check(place, "docker");
    assert!(!here.stderr.contains("another host"), "{here:?}");
    assert!(run(&["--undo"]).status.success());
    let checked = run(&["--check"]);
    assert_eq!(checked.stderr.matches(said).count(), 1, "{checked:?}");
}
