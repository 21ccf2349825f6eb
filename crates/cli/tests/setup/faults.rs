//! `setup ENGINE --check` after something was broken: each fault is an exit code other than 0 and
//! a line that names the fault; once it is mended, the check succeeds again. What is no fault has
//! the exit code 0.

use super::place::{EndedCommand, SYNCONCE, TestRoot};
use super::planted::{FaultRow, FileFault, with_fault};
use std::fs;
use std::process::Command;

const CHECK: [&str; 2] = ["docker", "--check"];
const RUNTIME: &str = "usr/local/bin/synconce-oci";
const DROP_IN: &str = "etc/systemd/system/docker.service.d/synconce.conf";
const LATER: &str = "etc/systemd/system/docker.service.d/zz.conf";
const DAEMON: &str = "etc/docker/daemon.json";
const RULES: &str = "etc/synconce/oci.toml";

const FAULTS: [FaultRow; 9] = [
    (
        "our binary is gone",
        RUNTIME,
        FileFault::Gone,
        1,
        "synconce-oci: is no executable file; inst",
    ),
    (
        "another PATH wins",
        LATER,
        FileFault::Written("[Service]\nEnvironment=PATH=/usr/bin\n"),
        1,
        "zz.conf, line 2: sets PATH, and wins over the drop-in file ",
    ),
    (
        "the PATH of the set-up was edited",
        DROP_IN,
        FileFault::Replaced("/docker:", "/other:"),
        1,
        "synconce.conf: was edited since synconce edited it; `synconce setup docker ",
    ),
    (
        "the rule file is broken",
        RULES,
        FileFault::Written("[[rule]\n"),
        1,
        "no container starts: cannot understand ",
    ),
    (
        "runc is the default runtime",
        DAEMON,
        FileFault::Replaced("\"default-runtime\": \"synconce\"", "\"default-runtime\": \"runc\""),
        1,
        "docker is not set up: it would be by synconce setup docker",
    ),
    (
        "a third runtime is the default",
        DAEMON,
        FileFault::Replaced("\"default-runtime\": \"synconce\"", "\"default-runtime\": \"nvidia\""),
        1,
        "docker --builds-only is not set up: ",
    ),
    (
        "the rule file is of a later version",
        RULES,
        FileFault::Written("of-a-later-version = true\n"),
        1,
        "no container starts: cannot understand ",
    ),
    (
        "the drop-in file is gone",
        DROP_IN,
        FileFault::Gone,
        1,
        "docker is not set up: it would be by ",
    ),
    // No fault: a step without a seccomp profile is held, too, as oci/runtimes.rs tests.
    (
        "the profile is unconfined",
        DAEMON,
        FileFault::Replaced(
            "\"debug\": true",
            "\"debug\": true,\n  \"seccomp-profile\": \"unconfined\"",
        ),
        0,
        "by the files of the set-up, a build step is held, an ordinary container is not",
    ),
];

#[test]
fn a_check_is_red_after_each_planted_fault_and_green_again_without_it() {
    let place = TestRoot::new("faults");
    assert_eq!(place.setup(&["docker"]).code, Some(0));
    let green = |name: &str| {
        let ended = place.setup(&CHECK);
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
        assert!(ended.stderr.contains(", a build step is held"), "{name}: {ended:?}");
    };
    green("as set up");
    for (name, path, fault, code, part) in &FAULTS {
        with_fault(&place.root.join(path), fault, || {
            let ended = place.setup(&CHECK);
            assert_eq!(ended.code, Some(*code), "{name}: {ended:?}");
            assert!(ended.stderr.contains(part), "{name}: {ended:?}");
        });
        green(name);
    }
}

#[test]
fn the_hint_about_a_missing_runtime_makes_the_link() {
    let place = TestRoot::new("no-runtime");
    let runtime = place.root.join(RUNTIME);
    for (synconce, target) in
        [("usr/local/bin/synconce", "synconce"), ("usr/bin/synconce", "/usr/bin/synconce")]
    {
        fs::remove_file(&runtime).unwrap();
        place.program(synconce);
        let refused = place.setup(&["docker"]);
        assert_eq!(refused.code, Some(125), "{refused:?}");
        let link = format!("ln -sf {target} {}", runtime.display());
        assert!(refused.stderr.ends_with(&format!("synconce: hint: {link}\n")), "{refused:?}");
        let made = Command::new("sh").args(["-c", &link]).status().unwrap();
        assert!(made.success(), "{link}");
        let checked = place.setup(&["docker", "--dry-run"]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        fs::remove_file(place.root.join(synconce)).unwrap();
    }
}

/// The name decides whether synconce acts as a runtime.
#[test]
fn a_runtime_that_is_not_synconce_oci_is_refused() {
    let place = TestRoot::new("other-runtime");
    place.write("etc/containerd/config.toml", "version = 2\n");
    place.program("usr/sbin/runc");
    place.program("usr/local/bin/synconce");
    let before = place.snapshot();
    let root = place.root.display();
    for words in [&["docker"][..], &["docker", "--builds-only"], &["containerd"]] {
        for path in ["/usr/sbin/runc", "/usr/local/bin/synconce"] {
            let refused = place.setup(&[words, &["--runtime", path]].concat());
            let said = format!(
                "synconce: {root}{path}: is not named synconce-oci\n\
                 synconce: hint: synconce setup {} --root {root}\n",
                words.join(" ")
            );
            assert_eq!(refused.code, Some(125), "{refused:?}");
            assert!(refused.stderr.ends_with(&said), "{said}: {refused:?}");
        }
    }
    assert_eq!(before, place.snapshot());
}

#[test]
fn a_check_needs_no_writable_etc_and_says_that_a_set_up_would() {
    let place = TestRoot::new("faults-read-only");
    let check = || {
        let script = "mount --bind \"$0/etc\" \"$0/etc\" && \
                      mount -o remount,bind,ro \"$0/etc\" && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(&place.root).arg(SYNCONCE);
        EndedCommand::run(command.args(place.arguments(&CHECK)))
    };
    let red = check();
    assert_eq!(red.code, Some(1), "{red:?}");
    assert!(red.stderr.contains("docker is not set up: it would be by "), "{red:?}");
    let directory = place.root.join("etc/docker");
    let said = format!("synconce: {} is read-only: make its file system ", directory.display());
    assert!(red.stderr.contains(&said), "{red:?}");
    assert_eq!(place.setup(&["docker"]).code, Some(0));
    let green = check();
    assert_eq!(green.code, Some(0), "{green:?}");
    assert!(!green.stderr.contains("is read-only"), "{green:?}");
}
