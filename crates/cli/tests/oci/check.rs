//! `setup ENGINE --check` beside real daemons.

use crate::engines::SHORT;
use crate::groups::GroupsOfEngines;
use crate::plain::{self, Dockerd};
use crate::set_up::{CONTAINERD, CONTAINERD_FILE, DAEMON_JSON, end, environment, setup, system};
use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use synconce_testkit::harness::{
    Cgroups, Need, Place, binary, eventually, finish, trial, until_dockerd_answers,
};
use synconce_testkit::patiently;
use synconce_testkit::process::{Finished, Group};

/// What a check says after containers of its own.
pub const PROBED: &str = "synconce: a probe step was held, a probe container was not\n";
/// What it says after a step by buildctl.
pub const PROBED_STEP: &str = "synconce: a probe step was held\n";
/// What it says after containers by ctr.
pub const PROBED_POD: &str =
    "synconce: a probe container that requests a hold was held, a probe container was not\n";
const NEEDS: [Need; 2] = [CONTAINERD[0], CONTAINERD[1]];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_check_asks_dockerd_at_the_host_of_its_file, &plain::DOCKER),
        trial(a_signal_ends_a_check_also_while_dockerd_hangs, &plain::DOCKER),
        trial(a_check_knows_the_systems_containerd_and_the_mounts_of_its_hold, &NEEDS),
        trial(a_check_names_daemons_that_the_set_up_does_not_reach, &[]),
        trial(a_check_by_an_ordinary_user_names_the_command_for_root, &[]),
    ]
}

fn a_check_asks_dockerd_at_the_host_of_its_file(place: &Place) {
    system(place);
    let done = setup(place, &["docker"]);
    let (name, value) = environment(&done).expect("a variable");
    setup(place, &["docker", "--undo"]);
    // Dropped after the daemon.
    let cgroups = Cgroups::unique();
    let mut dockerd = place.command("dockerd");
    dockerd.env(&name, &value).args(["--storage-driver", "vfs", "--bridge", "none"]);
    // The check runs containers.
    dockerd.args(["--cgroup-parent", &cgroups.parent()]);
    dockerd.arg("--data-root").arg(place.path("data")).arg("--iptables=false");
    dockerd.args(["--exec-root", &format!("{SHORT}/exec"), "--pidfile"]);
    dockerd.arg(format!("{SHORT}/pid"));
    let host = format!("unix://{SHORT}/other");
    // The undo has removed a directory that the set-up made.
    fs::create_dir_all(Path::new(DAEMON_JSON).parent().unwrap()).unwrap();
    fs::write(DAEMON_JSON, format!("{{ \"hosts\": [\"{host}\"] }}\n")).unwrap();
    let mut start = || {
        let started = Group::spawn(&mut dockerd).unwrap();
        until_dockerd_answers(&host);
        started
    };
    let dockerd = start();
    // The environment is that of the set-up; the file is not read yet.
    setup(place, &["docker"]);
    assert_fault(place, &["docker"], ") does not have it: its default runtime is runc; restart ");
    dockerd.signal(Signal::HUP).unwrap();
    eventually("dockerd has read its file", || check(place, &["docker"]).status.code() == Some(0));
    assert_in_use(place, "docker", "dockerd");
    setup(place, &["docker", "--undo"]);
    let has_still = |dockerd: &Group, why: &str| {
        let undone = check(place, &["docker"]);
        assert_eq!(undone.status.code(), Some(1), "{undone:?}");
        let not_set_up = "synconce: docker is not set up: it would be by synconce setup docker\n";
        assert!(undone.stderr.contains(not_set_up), "{undone:?}");
        let said = format!("synconce: dockerd (pid {}) still has it: {why}", dockerd.pid());
        assert!(undone.stderr.contains(&format!("{said}; restart dockerd")), "{undone:?}");
    };
    has_still(&dockerd, "its default runtime is synconce");
    end(&dockerd);
    drop(dockerd);
    // The environment of the set-up is still there; its file is not.
    let dockerd = start();
    has_still(&dockerd, &format!("its environment has the {name} of the set-up"));
    end(&dockerd);
    let ended = check(place, &["docker"]);
    assert!(!ended.stderr.contains(" still has it"), "{ended:?}");
}

fn a_signal_ends_a_check_also_while_dockerd_hangs(place: &Place) {
    system(place);
    let done = setup(place, &["docker"]);
    let (name, value) = environment(&done).expect("a variable");
    let mut dockerd = place.command("dockerd");
    dockerd.env(&name, &value);
    let daemon = Dockerd::start(place, dockerd);
    let list = |words: &[&str]| daemon.run("1", words).stdout;
    let images = || list(&["images", "--all", "--quiet"]);
    let [waits, go] = steps_that_wait(place);
    let cancelled = |hang: bool| {
        let mut check = place.synconce(&["setup", "docker", "--check"]);
        let check = Group::spawn(check.env("SYNCONCE_OCI_FILE", "/none")).unwrap();
        eventually("the step of the check begins", || waits.exists());
        assert_ne!(images(), "");
        if hang {
            daemon.suspend();
        }
        check.signal(Signal::INT).unwrap();
        fs::write(&go, "").unwrap();
        let ended = check.wait(patiently(Duration::from_secs(50))).unwrap();
        let ended = ended.expect("the check goes on");
        for file in [&waits, &go] {
            fs::remove_file(file).unwrap();
        }
        let said = check.stderr().unwrap();
        assert_eq!(ended.signal(), Some(Signal::INT.as_raw()), "{said}");
        said
    };
    let said = cancelled(false);
    let (why, left) = said.split_once('\n').unwrap();
    assert!(why.ends_with(": interrupted by a signal"), "{said}");
    let made_later = "synconce: dockerd may still make synconce-check";
    assert!(left.lines().all(|line| line.starts_with(made_later)), "{said}");
    assert_eq!((images(), list(&["ps", "--all", "--quiet"])), (String::new(), String::new()));
    let said = cancelled(true);
    for command in ["rm --force synconce-check-", "image rm synconce-check:"] {
        let command = format!("interrupted by a signal; remove it: docker {command}");
        assert!(said.contains(&command), "{command}: {said}");
    }
    daemon.signal(Signal::CONT);
    daemon.stop();
}

/// Makes runc wait before each container that it runs. Returns the path of a file that is there
/// once runc waits, and that of a file for which runc waits.
fn steps_that_wait(place: &Place) -> [PathBuf; 2] {
    let [real, waits, go] = ["real-runc", "waits", "go"].map(|name| place.path(name));
    fs::copy("/usr/sbin/runc", &real).unwrap();
    // The loop ends with the place, too.
    let [begun, end] = [&waits, &go].map(|path| path.display());
    let wait =
        format!("touch {begun}; until [ -e {end} ] || ! [ -e {begun} ]; do sleep 0.02; done");
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' run '*) {wait};; esac\nexec {} \"$@\"\n",
        real.display()
    );
    let script = place.write("slow-runc", &script);
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    mount_bind(&script, "/usr/sbin/runc").unwrap();
    [waits, go]
}

fn a_check_names_daemons_that_the_set_up_does_not_reach(place: &Place) {
    system(place);
    let check = || check(place, &["docker"]).stderr;
    let part = "; hold its steps in the Dockerfile";
    let named = |name: &str| format!("printf {name} >/proc/self/comm; sleep 1000; true");
    // The dockerd of a snap reads this file. The flag is `$0` of the shell.
    let file = "/var/snap/docker/1/config/daemon.json";
    let (flag, reads) = (format!("--config-file={file}"), format!("that reads {file}"));
    let unshare = ["unshare", "--pid", "--fork", "--kill-child"];
    let setpriv = ["setpriv", "--reuid=12345", "--clear-groups"];
    for (words, program, owner) in [
        (&unshare[..], "buildkitd", "of a container"),
        (&setpriv, "dockerd", "of user 12345"),
        (&["env"], "dockerd", &reads),
    ] {
        let is_named = |line: &str| {
            line.starts_with(&format!("synconce: not reached by the set-up: {program} (pid "))
                && line.ends_with(&format!(") {owner}{part}"))
        };
        assert!(!check().lines().any(is_named), "{}", check());
        let mut daemon = place.command(words[0]);
        daemon.args(&words[1..]).args(["sh", "-c", &named(program), &flag]);
        let daemon = Group::spawn(&mut daemon).unwrap();
        eventually(owner, || check().lines().any(is_named));
        drop(daemon);
    }
}

fn a_check_by_an_ordinary_user_names_the_command_for_root(place: &Place) {
    system(place);
    setup(place, &["docker"]);
    let mut daemon = place.command("sh");
    daemon.args(["-c", "printf dockerd >/proc/self/comm; sleep 1000; true"]);
    let daemon = Group::spawn(&mut daemon).unwrap();
    let mut check = place.command("setpriv");
    check.args(["--reuid=12345", "--clear-groups", binary(), "setup", "docker", "--check"]);
    let said = format!(
        "synconce: dockerd (pid {}): only root may read its environment; sudo {} setup docker \
         --check\n",
        daemon.pid(),
        binary()
    );
    let mut ended = None;
    eventually("the process has the name of the daemon", || {
        let checked = ended.insert(finish(&mut check));
        !checked.stderr.contains("dockerd is not running")
    });
    let ended = ended.unwrap();
    assert!(ended.status.code() == Some(1) && ended.stderr.contains(&said), "{ended:?}");
}

fn a_check_knows_the_systems_containerd_and_the_mounts_of_its_hold(place: &Place) {
    system(place);
    let root = place.path("containerd");
    let configuration = |root: &Path| format!("version = 2\nroot = \"{}\"\n", root.display());
    fs::write(CONTAINERD_FILE, configuration(&root)).unwrap();
    let start = |file: &str| {
        let mut daemon = place.command("/usr/bin/containerd");
        let daemon = Group::spawn(daemon.args(["--config", file])).unwrap();
        let ctr = || finish(place.command("/usr/bin/ctr").arg("version"));
        eventually("containerd answers", || ctr().status.success());
        daemon
    };
    setup(place, &["containerd"]);
    // The containerd of k3s has the same name and another configuration.
    let other = place.path("agent.toml");
    fs::write(&other, configuration(&place.path("agent"))).unwrap();
    let daemon = start(other.to_str().unwrap());
    let said = format!("): it reads {}, and the set-up is for {CONTAINERD_FILE}", other.display());
    assert_fault(place, &["containerd"], &said);
    end(&daemon);
    let daemon = start(CONTAINERD_FILE);
    assert_in_use(place, "containerd", "containerd");
    end(&daemon);

    setup(place, &["containerd", "--hold"]);
    let hold = |verb: &str| {
        let done = finish(&mut place.synconce(&["hold", verb, "containerd"]));
        assert!(done.status.success(), "{verb}: {done:?}");
    };
    let held = ["containerd", "--hold"];
    hold("start");
    let daemon = start(CONTAINERD_FILE);
    let green = check(place, &held);
    assert_eq!(green.status.code(), Some(0), "{green:?}");
    // The marker is there; the overlay is not.
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let overlay = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let overlay: Vec<_> = overlay.filter(|at| Path::new(at).starts_with(&root)).collect();
    let first = overlay.first().unwrap_or_else(|| panic!("no overlay: {mounts}"));
    unmount(*first, UnmountFlags::DETACH).unwrap();
    let why = ") does not have it: the hold of its databases is incomplete: ";
    assert_fault(place, &held, why);
    end(&daemon);
    hold("stop");
    let daemon = start(CONTAINERD_FILE);
    assert_fault(place, &held, ") does not have it: its databases are not held; ");
    end(&daemon);
}

/// Asserts that the check of the set-up `words` finds one fault, which has `part`.
fn assert_fault(place: &Place, words: &[&str], part: &str) {
    let checked = check(place, words);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert!(checked.stderr.contains(part), "{part}: {checked:?}");
}

/// Runs `setup WORDS --check`.
pub fn check(place: &Place, words: &[&str]) -> Finished {
    let words = [&["setup"], words, &["--check"]].concat();
    finish(place.synconce(&words).env("SYNCONCE_OCI_FILE", "/none"))
}

/// Asserts that the running daemon `program` has the set-up `name`.
pub fn assert_in_use(place: &Place, name: &str, program: &str) {
    let checked = check(place, &[name]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let said = format!("synconce: {program} (pid ");
    let mut lines = checked.stderr.lines();
    assert!(lines.any(|it| it.starts_with(&said) && it.ends_with(") has it")), "{checked:?}");
    let probed = match program {
        "dockerd" => PROBED,
        "buildkitd" => PROBED_STEP,
        _ => PROBED_POD,
    };
    assert!(checked.stderr.contains(probed), "{checked:?}");
}

/// Asserts that the running daemon `program` has not yet what a set-up would write, and that the
/// reason and the command are said.
pub fn assert_not_in_use(place: &Place, name: &str, program: &str, why: &str) {
    setup(place, &[name]);
    let checked = check(place, &[name]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    let said = format!(") does not have it: {why}");
    let restart = format!("; restart {program}");
    // dockerd has a variable of the set-up, which only systemd would read from a file.
    let end = if program == "dockerd" { " in its environment" } else { restart.as_str() };
    let is_said = |it: &str| it.contains(&said) && it.contains(&restart) && it.ends_with(end);
    assert!(checked.stderr.lines().any(is_said), "{checked:?}");
    setup(place, &[name, "--undo"]);
}

/// Asserts that the check of the set-up of Podman, which has no daemon, succeeds only if it is set
/// up and its steps are held, and leaves nothing.
pub fn assert_check_of_podman(place: &Place, is_set_up: bool) {
    let rules = place.write("oci.toml", "[[rule]]\nhold = false\n");
    let check = |rules: &Path| {
        // As root of a container, who may not raise the limits to those that Podman sets.
        let mut check = place.command("prlimit");
        check.args(["--nofile=4096", "--nproc=4096", "setpriv", "--bounding-set=-sys_resource"]);
        check.args([binary(), "setup", "podman", "--check"]);
        // The service of a user, which the check must not ask.
        finish(check.env("SYNCONCE_OCI_FILE", rules).env("CONTAINER_HOST", "unix:///none"))
    };
    let _groups = GroupsOfEngines::shared();
    let not_held = "synconce: a probe step of podman build was not held; edit ";
    let not_set_up = "synconce: podman is not set up: it would be by ";
    let cases = [(Path::new("/none"), 0, PROBED), (rules.as_path(), 1, not_held)];
    for (rules, code, said) in cases {
        let (code, said) = if is_set_up { (code, said) } else { (1, not_set_up) };
        let checked = check(rules);
        assert_eq!(checked.status.code(), Some(code), "{checked:?}");
        assert!(checked.stderr.contains(said), "{checked:?}");
        assert_nothing_below(&["/var/lib", "/run"]);
    }
    fs::remove_file(rules).unwrap();
}

/// Asserts that no directory and no control group of a probe is left in the directories `tops`. A
/// test beside this one may have some there for a while.
pub fn assert_nothing_below(tops: &[&str]) {
    for top in tops {
        eventually(&format!("nothing of a probe is left in {top}"), || {
            let mut names =
                fs::read_dir(top).into_iter().flatten().map(|it| it.unwrap().file_name());
            !names.any(|name| name.to_string_lossy().contains("synconce-check-"))
        });
    }
}
