//! Engines with state of their own, and with the default runtime and configuration.

use crate::engines::{LIMITS, SHORT, SOCKET};
use rustix::process::Signal;
use std::process::Command;
use synconce_sys::procfs::{self, Stat};
use synconce_testkit::harness::Cgroups;
use synconce_testkit::harness::Need;
use synconce_testkit::harness::{Place, eventually, finish, until_dockerd_answers};
use synconce_testkit::process::{Finished, Group};

const CC: Need = Need::Program("cc", "gcc libc6-dev");
const RUNC: Need = Need::Program("runc", "runc");
pub const BUILDAH: [Need; 3] = [Need::Program("buildah", "buildah"), RUNC, CC];
pub const PODMAN: [Need; 3] = [Need::Program("podman", "podman"), RUNC, CC];
/// Debian's client, by its path: the first client in the PATH may have no builder.
pub const DOCKER: [Need; 3] =
    [Need::Program("dockerd", "docker.io"), Need::File("/usr/bin/docker", "docker.io"), CC];
pub const BUILDKIT: [Need; 4] = [Need::Engine("buildkitd"), Need::Engine("buildctl"), RUNC, CC];

/// Returns the command `podman` or `buildah`.
pub fn daemonless(place: &Place, program: &str) -> Command {
    let mut command = place.command(program);
    command
        .env("TMPDIR", place.path("tmp"))
        .args(["--storage-driver", "vfs", "--root"])
        .arg(place.path("storage"))
        .args(["--runroot", SHORT]);
    command
}

/// A running dockerd.
pub struct Dockerd<'a> {
    place: &'a Place,
    daemon: Group,
    /// Dropped after the daemon.
    _cgroups: Cgroups,
}

impl<'a> Dockerd<'a> {
    /// Starts dockerd by `command`, which has the environment and the flags under test; waits
    /// until the daemon answers.
    pub fn start(place: &'a Place, command: Command) -> Self {
        Self::with_storage(place, command, "vfs")
    }

    /// Does what [`Dockerd::start`] does, with the storage driver `driver`.
    pub fn with_storage(place: &'a Place, mut command: Command, driver: &str) -> Self {
        let cgroups = Cgroups::unique();
        command
            .arg("--data-root")
            .arg(place.path("data"))
            .arg("--exec-root")
            .arg(format!("{SHORT}/exec"))
            .args(["--host", SOCKET, "--storage-driver", driver, "--pidfile"])
            .arg(format!("{SHORT}/pid"))
            .args(["--bridge", "none", "--iptables=false"])
            .args(["--cgroup-parent", &cgroups.parent()]);
        let daemon = Group::spawn(&mut command).unwrap();
        let docker = Self { place, daemon, _cgroups: cgroups };
        until_dockerd_answers(SOCKET);
        docker
    }

    /// Runs Debian's client, with BuildKit if `buildkit` is 1.
    pub fn run(&self, buildkit: &str, words: &[&str]) -> Finished {
        finish(self.client(buildkit).args(words))
    }

    /// Returns the command of Debian's client, with BuildKit if `buildkit` is 1.
    pub fn client(&self, buildkit: &str) -> Command {
        let mut command = self.place.command("/usr/bin/docker");
        command.env("DOCKER_BUILDKIT", buildkit).env("HOME", self.place.path("tmp"));
        command.args(["--host", SOCKET]);
        command
    }

    /// Builds the directory `context` anew as the image `probed`, with BuildKit if `buildkit` is 1.
    pub fn build(&self, buildkit: &str) -> Finished {
        let mut build = self.client(buildkit);
        build.args(["build", "--network", "none", "--no-cache", "--tag", "probed"]);
        if buildkit == "1" {
            build.args(["--progress", "plain"]);
        }
        let built = finish(build.arg("context"));
        assert!(built.status.success(), "{built:?}");
        built
    }

    /// Runs the probe in an ordinary container of the image `probed`.
    pub fn run_probe(&self) -> Finished {
        let limits = &LIMITS[..2];
        let words = [&["run", "--rm", "--network", "none"], limits, &["probed", "/probe"]];
        self.run("1", &words.concat())
    }

    pub fn signal(&self, signal: Signal) {
        self.daemon.signal(signal).unwrap();
    }

    /// Stops dockerd by SIGSTOP. One thread takes the signal once that thread runs; until then the
    /// other threads answer.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
        let pid = self.daemon.pid();
        let state = |thread| Stat::of_thread(pid, thread)?.state();
        let is_stopped = |thread| matches!(state(thread), Some('T') | None);
        eventually("dockerd is stopped", || procfs::threads(pid).all(is_stopped));
    }

    pub fn stop(self) {
        self.signal(Signal::TERM);
        let ended = self.daemon.wait(synconce_testkit::harness::limit()).unwrap();
        assert!(ended.is_some(), "dockerd does not end");
    }
}
