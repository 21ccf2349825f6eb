//! dockerd, with each of its builders.

use super::{
    Given, HOLD, ImageBuilder, LIMITS, SHORT, SOCKET, STEPS, Site, USERS, add_synconce,
    assert_bare, assert_held, assert_steps_bare, assert_steps_held, prepare, stop,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use synconce_testkit::harness::Need;
use synconce_testkit::harness::{
    Place, children, finish, limit, process_status, until_dockerd_answers,
};
use synconce_testkit::process::{Finished, Group};

/// Debian's client, by its path: the first client in the PATH may have no builder.
pub const NEEDS: [Need; 3] = [
    Need::Program("dockerd", "docker.io"),
    Need::File("/usr/bin/docker", "docker.io"),
    Need::Program("cc", "gcc libc6-dev"),
];

/// A running dockerd with synconce as its default runtime and first in its PATH, where
/// BuildKit looks for the runtime; or with runc.
pub struct Docker<'a> {
    site: &'a Site<'a>,
    daemon: Group,
}

/// A dockerd with one of its builders.
pub struct With<'a> {
    docker: &'a Docker<'a>,
    buildkit: bool,
}

impl<'a> Docker<'a> {
    pub fn start(site: &'a Site<'a>) -> Self {
        Self::with_storage(site, "vfs")
    }

    /// Starts dockerd with the storage driver `driver`; `overlayfs` is that of containerd's image
    /// store.
    pub fn with_storage(site: &'a Site<'a>, driver: &str) -> Self {
        Self::spawned(site, site.command("dockerd"), driver)
    }

    /// Starts it in the user and mount namespaces of the process `namespaces`.
    pub fn rootless(site: &'a Site<'a>, namespaces: u32) -> Self {
        let mut command = site.command("nsenter");
        command.args(["--user", "--mount", "--target", &namespaces.to_string()]);
        command.args(["dockerd", "--rootless"]);
        Self::spawned(site, command, "overlay2")
    }

    fn spawned(site: &'a Site<'a>, mut command: Command, driver: &str) -> Self {
        let us = site.given == Given::Us;
        let mut config = json!({
            "runtimes": {"synconce": {"path": site.place.text("before/synconce-oci")}},
            "default-runtime": if us { "synconce" } else { "runc" },
            "data-root": site.storage.join("docker"),
            "exec-root": format!("{SHORT}/exec"),
            "hosts": [SOCKET],
            "pidfile": format!("{SHORT}/pid"),
            "storage-driver": driver,
            "deprecated-key-path": site.place.text("key.json"),
            "cgroup-parent": site.cgroups.parent(),
            "bridge": "none",
            "iptables": false,
        });
        if driver == "overlayfs" {
            config["features"] = json!({"containerd-snapshotter": true});
        }
        let config = site.place.write("daemon.json", &config.to_string());
        let path = std::env::var("PATH").unwrap_or_default();
        let before = if us { site.place.text("before") + ":" } else { String::new() };
        command.env("PATH", before + &path).arg("--config-file").arg(config);
        let daemon = Group::spawn(&mut command).unwrap();
        let docker = Self { site, daemon };
        until_dockerd_answers(SOCKET);
        docker
    }

    pub fn client(&self, buildkit: &str, words: &[&str]) -> Finished {
        finish(self.command(buildkit).args(words))
    }

    /// Returns the command of the client, with BuildKit if `buildkit` is 1.
    pub fn command(&self, buildkit: &str) -> Command {
        let mut command = self.site.command("/usr/bin/docker");
        command.env("DOCKER_BUILDKIT", buildkit).args(["--host", SOCKET]);
        command
    }

    /// Returns the classic builder of dockerd.
    pub fn classic(&self) -> With<'_> {
        With { docker: self, buildkit: false }
    }

    /// Returns the BuildKit in dockerd.
    pub fn buildkit(&self) -> With<'_> {
        With { docker: self, buildkit: true }
    }

    /// Runs `words` in a container of the image `probed` to their end.
    pub fn run(&self, options: &[&str], words: &[&str]) -> Finished {
        self.run_of("probed", options, words)
    }

    /// Makes the image `name` of the archive `from`.
    pub fn import(&self, from: &str, name: &str) {
        let imported = self.client("1", &["import", from, name]);
        assert!(imported.status.success(), "{imported:?}");
    }

    /// Runs `words` in a container of `image` to their end.
    pub fn run_of(&self, image: &str, options: &[&str], words: &[&str]) -> Finished {
        let own = ["run", "--rm", "--network", "none"];
        self.client("1", &[&own, &LIMITS[..2], options, &[image], words].concat())
    }

    pub fn stop(self) {
        stop("dockerd", &self.daemon);
    }

    /// Kills dockerd alone, as the kernel does when memory runs out. Its containerd ends with it.
    pub fn kill(self) {
        let dockerd = Pid::from_raw(self.daemon.pid().cast_signed()).unwrap();
        kill_process(dockerd, Signal::KILL).unwrap();
        assert!(self.daemon.wait(limit()).unwrap().is_some(), "dockerd does not end");
        // The test is the first process of a pid namespace, and so inherits containerd. To the next
        // dockerd a zombie is a running containerd: dockerd gives up after 15 seconds.
        let is_containerd =
            |pid: u32| process_status(pid).get("Name").is_some_and(|name| name == "containerd");
        for (pid, _) in children(std::process::id()).into_iter().filter(|it| is_containerd(it.0)) {
            let containerd = Pid::from_raw(pid.cast_signed()).unwrap();
            let ended = waitid(WaitId::Pid(containerd), WaitIdOptions::EXITED);
            assert!(ended.is_ok(), "containerd does not end: {ended:?}");
        }
    }
}

impl ImageBuilder for With<'_> {
    fn build(&self, options: &[&str]) -> Finished {
        let (value, own) =
            if self.buildkit { ("1", &["--progress", "plain"][..]) } else { ("0", &[][..]) };
        let first = ["build", "--network", "none", "--no-cache", "--tag", "probed"];
        self.docker.client(value, &[&first, own, options, &["context"]].concat())
    }

    fn save(&self) -> PathBuf {
        let site = self.docker.site;
        let name = if self.buildkit { "buildkit.tar" } else { "classic.tar" };
        let to = site.storage.join(name);
        let saved = self.docker.client("1", &["save", "--output", to.to_str().unwrap(), "probed"]);
        assert!(saved.status.success(), "{saved:?}");
        to
    }
}

pub fn its_steps_are_held_by_either_builder_and_its_containers_are_not(place: &Place) {
    prepare(place);
    let site = Site::new(place);
    let docker = Docker::start(&site);
    assert_steps_held("the classic builder", &docker.classic().build(&[]), USERS);
    assert_steps_held("its BuildKit", &docker.buildkit().build(&[]), USERS);
    containers_keep_their_syncs_unless_they_ask(&docker);
    what_looks_like_a_step_is_none(&docker);
    a_step_with_a_cache_is_bare(&docker);
    add_synconce(place);
    assert_steps_held(
        "a run in a step of the classic builder",
        &docker.classic().build(&[]),
        USERS,
    );
    assert_steps_held("a run in a step of BuildKit", &docker.buildkit().build(&[]), USERS);
    place.write("context/Dockerfile", &format!("{STEPS}LABEL {HOLD}\n"));
    assert_steps_held("a label", &docker.classic().build(&[]), USERS);
    assert_bare("an image cannot ask", &docker.run(&[], &["/probe"]));
    docker.stop();
}

fn containers_keep_their_syncs_unless_they_ask(docker: &Docker<'_>) {
    let run = |options: &[&str]| docker.run(options, &["/probe"]);
    let unconfined = ["--security-opt", "seccomp=unconfined"];
    for options in [&[][..], &["--privileged"], &unconfined, &["--user", "0"], &["--user", "1000"]]
    {
        assert_bare(&format!("run {options:?}"), &run(options));
        let asked = run(&[options, &["--label", HOLD]].concat());
        assert_held(&format!("asked for {options:?}"), &asked);
    }
}

fn what_looks_like_a_step_is_none(docker: &Docker<'_>) {
    let image = docker.client("1", &["inspect", "--format", "{{.Id}}", "probed"]);
    let image = image.stdout.trim_end();
    assert!(image.starts_with("sha256:"), "{image}");
    for options in [&[][..], &["--volume", "/data"]] {
        let alike = [&["--log-driver", "none", "--no-healthcheck"], options].concat();
        let run = docker.run_of(image, &alike, &["/probe"]);
        assert_bare("a container that looks like a step", &run);
    }
    // A client of dockerd's API can make all properties alike.
    let wanted = json!({"Image": image, "Cmd": ["/probe"], "Entrypoint": [], "AttachStdout": true,
        "Healthcheck": {"Test": ["NONE"]}, "HostConfig": {"NetworkMode": "none",
        "LogConfig": {"Type": "none"}}});
    let made = post("/containers/create?name=alike", &wanted);
    assert!(made.starts_with("HTTP/1.0 201 "), "{made}");
    let started = docker.client("1", &["start", "--attach", "alike"]);
    assert_bare("a container of a client of the API", &started);
    assert!(docker.client("1", &["rm", "alike"]).status.success());
}

/// Returns dockerd's answer to a request of its API.
fn post(path: &str, body: &Value) -> String {
    let mut socket = UnixStream::connect(SOCKET.trim_start_matches("unix://")).unwrap();
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.0\r\nContent-Type: application/json\r\n");
    let length = format!("Content-Length: {}\r\n\r\n", body.len());
    socket.write_all([head, length, body].concat().as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// A cache mount outlives the step. With a volatile root its syncs are real, too.
fn a_step_with_a_cache_is_bare(docker: &Docker<'_>) {
    let place = docker.site.place;
    let cached = "RUN --mount=type=cache,target=/cache [\"/probe\", \"well\"]\n";
    place.write("context/Dockerfile", &format!("FROM scratch\nCOPY probe /\n{cached}"));
    for how in ["as-mounted", "volatile"] {
        place.write("oci.toml", &format!("step-root = {how:?}\n"));
        assert_steps_bare(how, &docker.buildkit().build(&[]), 1);
    }
    place.write("context/Dockerfile", STEPS);
    place.write("oci.toml", "");
}
