//! Real engines, with state of their own: a step of a build is held, an ordinary
//! container keeps its syncs, and one that asks is held.

use crate::bundles::{BARE, HELD, probe};
use crate::harness::{Need, engine};
use crate::support::{Place, SYNCONCE, eventually, finish};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use serde_json::json;
use std::process::Command;
use synconce_testkit::process::{Finished, Group};

pub const BUILDAH: [Need; 3] = [
    Need::Program("buildah", "buildah"),
    Need::Program("runc", "runc"),
    Need::Program("cc", "gcc libc6-dev"),
];
pub const PODMAN: [Need; 3] = [
    Need::Program("podman", "podman"),
    Need::Program("runc", "runc"),
    Need::Program("cc", "gcc libc6-dev"),
];
/// Debian's client; another may be first in the PATH, without a builder.
pub const DOCKER: [Need; 3] = [
    Need::Program("dockerd", "docker.io"),
    Need::File("/usr/bin/docker", "docker.io"),
    Need::Program("cc", "gcc libc6-dev"),
];

/// In memory, of this test alone (see `isolation`), and short: paths of sockets are.
pub const SHORT: &str = "/run/synconce-rig";
pub const BUILDKIT: [Need; 4] = [
    Need::Engine("buildkitd"),
    Need::Engine("buildctl"),
    Need::Program("runc", "runc"),
    Need::Program("cc", "gcc libc6-dev"),
];

pub const SOCKET: &str = "unix:///run/synconce-rig/socket";

const STEPS: &str = "FROM scratch\nCOPY probe /probe\nRUN [\"/probe\", \"well\"]\n";
/// Engines set limits that are higher than what a machine may allow.
pub const LIMITS: [&str; 4] = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"];

/// A directory with the probe and a Dockerfile, and us as `synconce-oci` and `runc`.
pub fn prepare(place: &Place) {
    let _ = unmount("/sys/fs/cgroup/unified", UnmountFlags::DETACH);
    // What engines keep for the whole machine, locks among it.
    for shared in ["/run", "/dev/shm"] {
        mount("test", shared, "tmpfs", MountFlags::empty(), None).unwrap();
    }
    std::fs::create_dir_all(SHORT).unwrap();
    std::fs::create_dir_all(place.path("context")).unwrap();
    std::fs::create_dir_all(place.path("before")).unwrap();
    std::fs::create_dir_all(place.path("tmp")).unwrap();
    std::fs::copy(probe(place), place.path("context/probe")).unwrap();
    place.write("context/Dockerfile", STEPS);
    for name in ["synconce-oci", "runc"] {
        std::os::unix::fs::symlink(SYNCONCE, place.path("before").join(name)).unwrap();
    }
}

/// `podman` or `buildah`, with state of its own and us as its runtime.
fn daemonless(place: &Place, program: &str) -> Command {
    let mut command = place.command(program);
    command
        .env("TMPDIR", place.path("tmp"))
        .args(["--storage-driver", "vfs", "--root"])
        .arg(place.path("storage"))
        .args(["--runroot", SHORT]);
    command
}

fn assert_held(what: &str, finished: &Finished) {
    assert!(finished.stdout.contains(HELD), "{what}: {finished:?}");
}

fn assert_bare(what: &str, finished: &Finished) {
    // Some engines' own profiles have no io_uring.
    let syncs = BARE.split("io_uring").next().unwrap_or_default();
    assert!(finished.stdout.contains(syncs), "{what}: {finished:?}");
}

pub fn buildahs_steps_are_held(place: &Place) {
    prepare(place);
    let build = finish(
        daemonless(place, "buildah")
            .args(["bud", "--isolation", "oci", "--network", "none", "--no-cache", "--runtime"])
            .arg(place.path("before/runc"))
            .args(["--tag", "probed", "context"]),
    );
    assert!(build.status.success(), "{build:?}");
    assert_held("bud", &build);
}

pub fn podmans_steps_are_held_and_its_containers_are_not(place: &Place) {
    prepare(place);
    let podman = || {
        let mut command = daemonless(place, "podman");
        command.args(["--cgroup-manager", "cgroupfs", "--runtime"]).arg(place.path("before/runc"));
        command
    };
    let build = finish(podman().args([
        "build",
        "--network",
        "none",
        "--no-cache",
        "--tag",
        "probed",
        "context",
    ]));
    assert!(build.status.success(), "{build:?}");
    assert_held("build", &build);
    let run = |options: &[&str]| {
        let mut command = podman();
        command.args(["run", "--rm", "--network", "none"]).args(LIMITS).args(options);
        finish(command.args(["probed", "/probe"]))
    };
    // What a user may choose makes no container a build's.
    assert_bare("run", &run(&["--hostname", "buildkitsandbox", "--name", "buildah-buildah1"]));
    let ask = ["--annotation", "io.synconce.hold=true"];
    for options in
        [&[][..], &["--privileged"], &["--security-opt", "seccomp=unconfined"], &["--user", "1000"]]
    {
        assert_held("asked for", &run(&[options, &ask].concat()));
    }
    let brought = finish(
        podman()
            .args(["build", "--network", "none", "--no-cache", "--annotation", ask[1]])
            .args(["--tag", "probed", "context"]),
    );
    assert!(brought.status.success(), "{brought:?}");
    assert_bare("an image cannot ask", &run(&[]));
    place.write("context/Dockerfile", "FROM probed\nRUN [\"/probe\", \"well\"]\n");
    std::fs::create_dir_all(place.path("host")).unwrap();
    let volume = format!("{}:/data", place.text("host"));
    let build = finish(podman().args([
        "build",
        "--network",
        "none",
        "--no-cache",
        "--volume",
        &volume,
        "context",
    ]));
    assert!(build.status.success(), "{build:?}");
    assert_bare("a step that can write to the host", &build);
}

/// BuildKit puts the time before every line.
fn assert_step_held(what: &str, finished: &Finished) {
    // Its profile has had no io_uring for long.
    for line in HELD.lines().filter(|line| !line.starts_with("io_uring")) {
        let said = [&finished.stdout, &finished.stderr]
            .iter()
            .any(|text| text.lines().any(|said| said.ends_with(&format!(" {line}"))));
        assert!(said, "{what}: {line}: {finished:?}");
    }
}

pub fn buildkits_steps_are_held(place: &Place) {
    prepare(place);
    let program = |name: &str| place.command(engine(name).unwrap().to_str().unwrap());
    let mut daemon = program("buildkitd");
    daemon.arg("--root").arg(place.path("root")).args([
        "--addr",
        SOCKET,
        "--oci-worker-net",
        "host",
    ]);
    daemon.args(["--containerd-worker=false", "--oci-worker-snapshotter", "native"]);
    let binary = place.path("before/synconce-oci");
    let daemon = Group::spawn(daemon.arg("--oci-worker-binary").arg(binary)).unwrap();
    let client = |words: &[&str]| finish(program("buildctl").args(["--addr", SOCKET]).args(words));
    eventually("buildkitd answers", || client(&["debug", "workers"]).status.success());
    let build = client(&[
        "build",
        "--frontend",
        "dockerfile.v0",
        "--local",
        "context=context",
        "--local",
        "dockerfile=context",
        "--progress",
        "plain",
    ]);
    assert!(build.status.success(), "{build:?}");
    assert_step_held("buildkitd", &build);
    daemon.signal(Signal::TERM).unwrap();
    let ended = daemon.wait(crate::support::limit()).unwrap();
    assert!(ended.is_some(), "buildkitd does not end");
}

/// A dockerd with us as its default runtime, and first in its PATH.
struct Docker<'a> {
    place: &'a Place,
    daemon: Group,
}

impl<'a> Docker<'a> {
    fn start(place: &'a Place) -> Self {
        prepare(place);
        let config = json!({
            "runtimes": {"synconce": {"path": place.text("before/synconce-oci")}},
            "default-runtime": "synconce",
            "data-root": place.text("data"),
            "exec-root": format!("{SHORT}/exec"),
            "hosts": [SOCKET],
            "pidfile": format!("{SHORT}/pid"),
            "storage-driver": "vfs",
            "deprecated-key-path": place.text("key.json"),
            "bridge": "none",
            "iptables": false,
        });
        place.write("daemon.json", &config.to_string());
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = place.command("dockerd");
        command
            .env("PATH", format!("{}:{path}", place.text("before")))
            .arg("--config-file")
            .arg(place.path("daemon.json"));
        let daemon = Group::spawn(&mut command).unwrap();
        let docker = Self { place, daemon };
        eventually("dockerd answers", || docker.run(&["version"]).status.success());
        docker
    }

    fn run(&self, words: &[&str]) -> Finished {
        self.with("1", words)
    }

    fn with(&self, buildkit: &str, words: &[&str]) -> Finished {
        let mut command = self.place.command("/usr/bin/docker");
        command.env("DOCKER_BUILDKIT", buildkit).env("HOME", self.place.path("tmp"));
        finish(command.arg("--host").arg(SOCKET).args(words))
    }

    fn stop(self) {
        self.daemon.signal(Signal::TERM).unwrap();
        let ended = self.daemon.wait(crate::support::limit()).unwrap();
        assert!(ended.is_some(), "dockerd does not end");
    }
}

pub fn dockers_steps_are_held_by_either_builder_and_its_containers_are_not(place: &Place) {
    let docker = Docker::start(place);
    let build = ["build", "--network", "none", "--no-cache", "--tag", "probed", "context"];
    let classic = docker.with("0", &build);
    assert!(classic.status.success(), "{classic:?}");
    assert_held("the classic builder", &classic);
    let buildkit = docker.with("1", &[&build[..1], &["--progress", "plain"], &build[1..]].concat());
    assert!(buildkit.status.success(), "{buildkit:?}");
    assert_step_held("its BuildKit", &buildkit);
    let run = |options: &[&str]| {
        let begin = ["run", "--rm", "--network", "none"];
        docker.run(&[&begin, &LIMITS[..2], options, &["probed", "/probe"]].concat())
    };
    assert_bare("run", &run(&[]));
    let image = docker.run(&["inspect", "--format", "{{.Id}}", "probed"]);
    let image = image.stdout.trim_end();
    assert!(image.starts_with("sha256:"), "{image}");
    let alike = |options: &[&str]| {
        let begin =
            ["run", "--rm", "--network", "none", "--log-driver", "none", "--no-healthcheck"];
        docker.run(&[&begin, &LIMITS[..2], options, &[image, "/probe"]].concat())
    };
    for options in [&[][..], &["--volume", "/data"]] {
        assert_bare("a container that looks like a step", &alike(options));
    }
    assert_held("asked for", &run(&["--label", "io.synconce.hold=true"]));
    assert_held(
        "unconfined",
        &run(&["--label", "io.synconce.hold=true", "--security-opt", "seccomp=unconfined"]),
    );
    assert_held("a user's", &run(&["--label", "io.synconce.hold=true", "--user", "1000"]));

    place.write("context/Dockerfile", &format!("{STEPS}LABEL io.synconce.hold=true\n"));
    let labelled = docker.with("0", &build);
    assert!(labelled.status.success(), "{labelled:?}");
    assert_bare("an image cannot ask", &run(&[]));
    docker.stop();
}
