//! `setup ENGINE --check` beside real engines after something was broken: each fault is the exit
//! code 1 and a line with what mends it, and without the fault the check succeeds again.

use crate::check::{PROBED, PROBED_POD, PROBED_STEP};
use crate::groups::GroupsOfEngines;
use crate::plain::{self, Dockerd};
use crate::planted::{FaultRow, FileFault, with_fault};
use crate::set_up::{
    CONTAINERD_2, DAEMON_JSON, PODMAN, end, environment, install_containerd_2, setup,
    start_buildkitd, start_containerd, system,
};
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, mount_remount};
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{Place, finish, trial};
use synconce_testkit::process::Finished;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(of_dockerd_are_found, &plain::DOCKER),
        trial(of_podman_are_found, &PODMAN),
        trial(of_buildkitd_are_found, &plain::BUILDKIT),
        trial(of_containerd_2_are_found, &CONTAINERD_2),
    ]
}

/// Faults of each engine.
const COMMON: [FaultRow; 2] = [
    (
        "our binary is gone",
        "usr/local/bin/synconce-oci",
        FileFault::Gone,
        1,
        "synconce-oci: is no executable file; ln -sf ",
    ),
    (
        "the rule file is of a later version",
        "etc/synconce/oci.toml",
        FileFault::Written("of-a-later-version = true\n"),
        1,
        "expected one of `runtime`, `step-root`, `rule`; edit /etc/synconce/oci.toml\n",
    ),
];

const BROKEN_RULES: FaultRow = (
    "the rule file is broken",
    "etc/synconce/oci.toml",
    FileFault::Written("[[rule]\n"),
    1,
    "no container starts: cannot understand /etc/synconce/oci.toml",
);

const OF_DOCKERD: [FaultRow; 4] = [
    BROKEN_RULES,
    (
        "another PATH wins",
        "etc/systemd/system/docker.service.d/zz.conf",
        FileFault::Written("[Service]\nEnvironment=PATH=/usr/bin\n"),
        1,
        "zz.conf, line 2: sets PATH, and wins over the drop-in file ",
    ),
    (
        "runc is the default runtime",
        "etc/docker/daemon.json",
        FileFault::Replaced("\"default-runtime\": \"synconce\"", "\"default-runtime\": \"runc\""),
        1,
        "docker is not set up: it would be by synconce setup docker",
    ),
    (
        "a third runtime is the default",
        "etc/docker/daemon.json",
        FileFault::Replaced("\"default-runtime\": \"synconce\"", "\"default-runtime\": \"nvidia\""),
        1,
        "docker --builds-only is not set up: ",
    ),
];

// Podman has no daemon that could need a restart, and finds the runtime by a list of paths instead
// of PATH.
const OF_PODMAN: [FaultRow; 5] = [
    // Its set-up reads the rule file for the name of a runtime.
    (
        "the rule file is broken",
        "etc/synconce/oci.toml",
        FileFault::Written("[[rule]\n"),
        1,
        "/etc/synconce/oci.toml, line 1: is no TOML: unclosed array table, expected `]`; repair ",
    ),
    (
        "another list of paths wins",
        "etc/containers/containers.conf.d/zz.conf",
        FileFault::Written("[engine.runtimes]\ncrun = [\"/usr/bin/crun\"]\n"),
        1,
        "zz.conf, line 2: sets engine.runtimes.crun, and is read after ",
    ),
    (
        "the list of paths was edited",
        "etc/containers/containers.conf.d/synconce.conf",
        FileFault::Replaced("/usr/local/lib/synconce/podman/crun", "/usr/bin/crun"),
        1,
        "synconce.conf: was edited since synconce edited it; `synconce setup podman ",
    ),
    (
        "another runtime is the default",
        "etc/containers/containers.conf",
        FileFault::Written("[engine]\nruntime = \"runc\"\n"),
        1,
        "podman is not set up: ",
    ),
    // No fault: a step without a seccomp profile is held, too.
    (
        "the profile is unconfined",
        "etc/containers/containers.conf",
        FileFault::Written("[containers]\nseccomp_profile = \"unconfined\"\n"),
        0,
        PROBED,
    ),
];

// buildkitd calls the runtime by its path, and its profile is part of the program.
const OF_BUILDKITD: [FaultRow; 3] = [
    BROKEN_RULES,
    (
        "another runtime is the default",
        "etc/buildkit/buildkitd.toml",
        FileFault::Replaced("/usr/local/bin/synconce-oci", "/usr/bin/crun"),
        1,
        "has worker.oci.binary = \"/usr/bin/crun\", not BuildKit's own; ",
    ),
    (
        "a flag wins",
        "etc/systemd/system/buildkit.service",
        FileFault::Written("[Service]\nExecStart=/usr/bin/buildkitd --oci-worker-binary runc\n"),
        1,
        "gives buildkitd --oci-worker-binary, which wins over its configuration; ",
    ),
];

// containerd calls the runtime by its path. Neither its default runtime nor a profile is set up: a
// pod requests a hold by its RuntimeClass, with the profile of its request.
const OF_CONTAINERD: [FaultRow; 3] = [
    BROKEN_RULES,
    (
        "the runtime has another binary",
        "etc/containerd/config.toml",
        FileFault::Replaced("/usr/local/bin/synconce-oci", "/usr/sbin/runc"),
        1,
        "has a runtime synconce that is not /usr/local/bin/synconce-oci; ",
    ),
    (
        "the plugin that has runtimes is disabled",
        "etc/containerd/config.toml",
        FileFault::Replaced("version = 2", "version = 2\ndisabled_plugins = [\"cri\"]"),
        1,
        "disables the plugin cri, which is the one that has runtimes; ",
    ),
];

/// Starts a daemon, with what the set-up has printed or without a set-up, and returns what ends it.
type Start<'a> = &'a dyn Fn(Option<&Finished>) -> Box<dyn FnOnce() + 'a>;

/// Plants the faults of each engine and `rows`. A daemon that was not restarted is found as `old`,
/// and a check succeeds with the line `well`.
fn are_found(
    place: &Place,
    name: &str,
    rows: &[FaultRow],
    (old, start): (&str, Option<Start<'_>>),
    well: &str,
) {
    let check = |fault: &str, code: i32, part: &str| {
        let mut check = place.synconce(&["setup", name, "--check"]);
        let checked = finish(check.env_remove("SYNCONCE_OCI_FILE"));
        assert_eq!(checked.status.code(), Some(code), "{fault}: {checked:?}");
        assert!(checked.stderr.contains(part), "{fault}: {checked:?}");
        assert!(code != 0 || !checked.stderr.contains(" not installed "), "{fault}: {checked:?}");
    };
    let _groups = GroupsOfEngines::shared();
    let remount = |flags| mount_remount("/etc", MountFlags::BIND | flags, "").unwrap();
    remount(MountFlags::RDONLY);
    check("/etc is read-only", 1, " is read-only: make its file system writable first\n");
    remount(MountFlags::empty());
    let daemon = start.map(|start| {
        let unheld = start(None);
        let done = setup(place, &[name]);
        check("the daemon was not restarted", 1, old);
        unheld();
        start(Some(&done))
    });
    if start.is_none() {
        setup(place, &[name]);
    }
    check("as set up", 0, well);
    remount(MountFlags::RDONLY);
    check("/etc is read-only, and the set-up is done", 0, well);
    remount(MountFlags::empty());
    for (fault, path, planted, code, part) in COMMON.iter().chain(rows) {
        with_fault(&Path::new("/").join(path), planted, || check(fault, *code, part));
        check(&format!("without: {fault}"), 0, well);
    }
    if let Some(end) = daemon {
        end();
    }
}

fn of_dockerd_are_found(place: &Place) {
    system(place);
    // No fault: a step without a seccomp profile is held, too. dockerd 20.10 has no word for it.
    let profile = place.write("unconfined.json", "{ \"defaultAction\": \"SCMP_ACT_ALLOW\" }\n");
    fs::write(DAEMON_JSON, format!("{{ \"seccomp-profile\": {profile:?} }}\n")).unwrap();
    let start = |done: Option<&Finished>| -> Box<dyn FnOnce()> {
        let mut dockerd = place.command("dockerd");
        dockerd.envs(done.and_then(environment));
        let dockerd = Dockerd::start(place, dockerd);
        Box::new(move || dockerd.stop())
    };
    let old = ") does not have it: its environment lacks the PATH of the set-up; restart dockerd";
    are_found(place, "docker", &OF_DOCKERD, (old, Some(&start)), PROBED);
}

fn of_podman_are_found(place: &Place) {
    system(place);
    are_found(place, "podman", &OF_PODMAN, ("", None), PROBED);
}

fn of_buildkitd_are_found(place: &Place) {
    system(place);
    let start = |_: Option<&Finished>| -> Box<dyn FnOnce()> {
        let daemon = start_buildkitd(place, &[], &[]);
        Box::new(move || end(&daemon))
    };
    let old = ") does not have it: it started before /etc/buildkit/buildkitd.toml was written; \
               restart buildkitd\n";
    are_found(place, "buildkit", &OF_BUILDKITD, (old, Some(&start)), PROBED_STEP);
}

fn of_containerd_2_are_found(place: &Place) {
    system(place);
    install_containerd_2();
    let start = |_: Option<&Finished>| -> Box<dyn FnOnce()> {
        let daemon = start_containerd(place, &[]);
        Box::new(move || end(&daemon))
    };
    let old = ") does not have it: it started before /etc/containerd/config.toml was written; \
               restart containerd\n";
    are_found(place, "containerd", &OF_CONTAINERD, (old, Some(&start)), PROBED_POD);
}
