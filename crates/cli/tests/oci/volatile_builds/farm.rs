//! The events of a machine that builds many Dockerfiles: steps with the host's network,
//! here-documents or a full disk, builds side by side, and a prune or a restart of the engine
//! during a step.

use super::dockerd_on_disk::{DockerdOnDisk, assert_none_volatile, overlays};
use super::{CHOWN, COPIED, COUNT, FILES, NEEDS, WAIT, assert_owned, begun};
use crate::engines::Given;
use crate::engines::buildkit::{self, BuildKit, Worker};
use crate::engines::docker::Docker;
use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs;
use synconce_testkit::harness::{
    Place, StartedCommand, children, eventually, process_status, trial,
};
use synconce_testkit::process::{Finished, Group};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(of_every_kind_of_step_are_held_on_a_volatile_root, &buildkit::NEEDS),
        trial(of_a_rootless_buildkitd_hardly_flush, &buildkit::NEEDS),
        trial(of_a_rootless_dockerd_hardly_flush, &NEEDS),
        trial(that_fill_the_disk_leave_nothing_to_the_next, &buildkit::NEEDS),
        trial(side_by_side_from_one_base_are_whole, &NEEDS),
        trial(go_on_after_a_prune_during_a_step, &NEEDS),
        trial(go_on_after_a_stop_of_dockerd_during_a_step, &NEEDS),
    ]
}

fn printed(build: &Finished) -> String {
    format!("{}{}", build.stdout, build.stderr)
}

fn of_every_kind_of_step_are_held_on_a_volatile_root(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let buildkit = BuildKit::with_snapshotter(&world.site, Worker::Oci, "overlayfs");
    let look = "busybox grep ' / / ' /proc/self/mountinfo | busybox sed 's/^/ROOT /'";
    let steps = [
        format!("RUN --network=host {look}\n"),
        format!("RUN <<EOF\n{look}\nEOF\n"),
        // The script is a file that BuildKit mounts from a directory of its own.
        format!("RUN <<EOF\n#!/bin/sh\n{look}\nEOF\n"),
        format!("COPY <<EOF /from\nx\nEOF\nRUN {look}\n"),
        format!("RUN {look}; (while :; do busybox date >>/behind; done) &\n"),
        format!("RUN --mount=type=cache,target=/c {look}; busybox touch /c/a\n"),
    ];
    let shell = "RUN [\"/bin/busybox\", \"ln\", \"-s\", \"busybox\", \"/bin/sh\"]\n";
    for step in &steps {
        let text = format!("{COPIED}{shell}{step}");
        let build = world.build(&buildkit, &text, &["--allow", "network.host"]);
        let printed = printed(&build);
        let is_volatile = |line: &str| line.contains(" ROOT ") && line.contains("volatile");
        assert!(build.status.success() && printed.lines().any(is_volatile), "{step}: {printed}");
        assert_none_volatile();
    }
    // Each build has two steps, and only the one with the cache is not held.
    let status = place.status(&[]).stdout;
    let counted =
        "buildkit: 11 build steps held since the boot, 12 with a volatile root, the last ";
    assert!(status.starts_with(counted), "{status}");
    buildkit.stop();
    world.end();
}

fn that_fill_the_disk_leave_nothing_to_the_next(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let buildkit = BuildKit::with_snapshotter(&world.site, Worker::Oci, "overlayfs");
    let fill = "RUN [\"/bin/busybox\", \"dd\", \"if=/dev/zero\", \"of=/full\", \"bs=1M\"]\n";
    let full = world.build(&buildkit, &format!("{COPIED}{fill}"), &[]);
    let text = printed(&full);
    assert!(!full.status.success() && text.contains("No space left on device"), "{text}");
    assert_none_volatile();
    let pruned = buildkit.prune();
    assert!(pruned.status.success(), "{pruned:?}");
    let build = world.build(&buildkit, &format!("{CHOWN}RUN {COUNT}\n"), &[]);
    assert!(build.status.success(), "{build:?}");
    assert!(printed(&build).contains(&format!(" {FILES}\n")), "{build:?}");
    assert_none_volatile();
    buildkit.stop();
    world.end();
}

fn side_by_side_from_one_base_are_whole(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let docker = world.start();
    for buildkit in ["1", "0"] {
        let before = world.steps();
        // BuildKit does equal steps of two builds once.
        let build = |at: usize| {
            let name = format!("side{at}");
            let step = format!("RUN [\"/bin/busybox\", \"touch\", \"/data/of-{at}\"]\n");
            place.write(&format!("context/{name}"), &format!("{CHOWN}{step}"));
            let file = format!("context/{name}");
            let own = ["build", "--network", "none", "--tag", &name, "--file", &file, "context"];
            StartedCommand::new(docker.command(buildkit).args(own))
        };
        let builds: Vec<_> = (0..4).map(build).collect();
        for (at, build) in builds.iter().enumerate() {
            assert!(build.end().success(), "{}", build.text());
            let look =
                format!("busybox ls /data/of-{at}; busybox ls /data | busybox wc -l; {OWNED}");
            let run =
                docker.run_of(&format!("side{at}"), &[], &["/bin/busybox", "sh", "-c", &look]);
            let wanted = format!("/data/of-{at}\n{}\n{FILES}\n", FILES + 1);
            assert_eq!(run.stdout, wanted, "{run:?}");
        }
        let after = world.steps();
        assert_eq!(after.1, 0, "a root stayed as it was");
        // Of BuildKit: one step of the base, and one of each build.
        assert!(buildkit == "0" || after.0 >= before.0 + 5, "{before:?} and {after:?}");
        assert_none_volatile();
    }
    docker.stop();
    world.end();
}

/// Prints how many files have the owner that [`CHOWN`] sets.
const OWNED: &str = "busybox find /data -type f -user 1 | busybox wc -l";

/// The words of a build that waits in a step.
const WAITING: [&str; 7] =
    ["build", "--network", "none", "--no-cache", "--tag", "probed", "context"];

/// A prune during a step, and one after a cancelled build.
fn go_on_after_a_prune_during_a_step(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let docker = world.start();
    let prune = || {
        let pruned = docker.client("1", &["builder", "prune", "--all", "--force"]);
        assert!(pruned.status.success(), "{pruned:?}");
    };
    for buildkit in ["1", "0"] {
        place.write("context/Dockerfile", &format!("{CHOWN}RUN {WAIT}\n"));
        let building = StartedCommand::new(docker.command(buildkit).args(WAITING));
        let root = begun();
        prune();
        fs::write(root.join("end"), "").unwrap();
        assert!(building.end().success(), "{}", building.text());
        assert_owned(&docker);
        let cancelled = StartedCommand::new(docker.command(buildkit).args(WAITING));
        begun();
        cancelled.signal(Signal::INT).unwrap();
        assert!(!cancelled.end().success());
        eventually("the roots are unmounted", || overlays().is_empty());
        prune();
        match buildkit {
            "1" => world.flushes(&docker.buildkit(), CHOWN),
            _ => world.flushes(&docker.classic(), CHOWN),
        };
        assert_owned(&docker);
        assert_none_volatile();
    }
    docker.stop();
    world.end();
}

/// Returns the processes of steps that have outlived their engine.
fn left() -> Vec<Pid> {
    let is_step = |pid: u32| process_status(pid).get("Name").is_some_and(|name| name == "busybox");
    let all = children(std::process::id()).into_iter().filter(|it| is_step(it.0));
    all.filter_map(|(pid, _)| Pid::from_raw(pid.cast_signed())).collect()
}

fn go_on_after_a_stop_of_dockerd_during_a_step(place: &Place) {
    let mut world = DockerdOnDisk::new(place);
    for given in [Given::Runc, Given::Us] {
        world.site.given = given;
        let docker = world.start();
        place.write("context/Dockerfile", &format!("{CHOWN}RUN {WAIT}\n"));
        let building = StartedCommand::new(docker.command("1").args(WAITING));
        let has_begun = || overlays().iter().any(|root| root.join("begun").exists());
        eventually("the step waits", has_begun);
        docker.stop();
        building.end();
        // dockerd unmounts the root. The kernel kills the runtime, and no process ends the step.
        eventually("the roots are unmounted", || overlays().is_empty());
        let left = left();
        assert_eq!(left.len(), 1, "{given:?}: {left:?}");
        let docker = world.start();
        world.flushes(&docker.buildkit(), CHOWN);
        assert_owned(&docker);
        kill_process(left[0], Signal::KILL).unwrap();
        waitid(WaitId::Pid(left[0]), WaitIdOptions::EXITED).unwrap();
        docker.stop();
        eventually("the roots are unmounted", || overlays().is_empty());
    }
    world.end();
}

/// Starts a process in a user namespace with the users of this one, and in its own mount namespace.
fn in_a_user_namespace(place: &Place) -> Group {
    let mut unshare = place.command("unshare");
    let namespace = Group::spawn(unshare.args(["--user", "--mount", "sleep", "1000"])).unwrap();
    let process = format!("/proc/{}", namespace.pid());
    // The mount namespace is made last.
    let of = |process: &str| fs::read_link(format!("{process}/ns/mnt")).ok();
    eventually("the namespaces are made", || of(&process) != of("/proc/self"));
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("{process}/{map}"), "0 0 65536").unwrap();
    }
    namespace
}

/// A buildkitd with no rights outside its user namespace, in which it mounts the overlays.
fn of_a_rootless_buildkitd_hardly_flush(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let namespace = in_a_user_namespace(place);
    let buildkit = BuildKit::rootless(&world.site, namespace.pid());
    world.assert_hardly_flush("rootless buildkitd", &buildkit);
    buildkit.stop();
    drop(namespace);
    world.end();
}

/// A dockerd like that buildkitd.
fn of_a_rootless_dockerd_hardly_flush(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let namespace = in_a_user_namespace(place);
    let docker = Docker::rootless(&world.site, namespace.pid());
    world.assert_hardly_flush("rootless dockerd, BuildKit", &docker.buildkit());
    world.assert_hardly_flush("rootless dockerd, classic builder", &docker.classic());
    docker.stop();
    drop(namespace);
    world.end();
}
