//! A dockerd with state of its own, and with the configuration that it is given.

use crate::engines::{SHORT, SOCKET};
use crate::support::{Place, eventually, finish};
use rustix::process::Signal;
use std::process::Command;
use synconce_testkit::process::{Finished, Group};

/// A dockerd that answers.
pub struct Dockerd<'a> {
    place: &'a Place,
    daemon: Group,
}

impl<'a> Dockerd<'a> {
    /// `command` is dockerd, in an environment and with the flags that are tested.
    pub fn start(place: &'a Place, mut command: Command) -> Self {
        command
            .arg("--data-root")
            .arg(place.path("data"))
            .arg("--exec-root")
            .arg(format!("{SHORT}/exec"))
            .args(["--host", SOCKET, "--storage-driver", "vfs", "--pidfile"])
            .arg(format!("{SHORT}/pid"))
            .args(["--bridge", "none", "--iptables=false"]);
        let daemon = Group::spawn(&mut command).unwrap();
        let docker = Self { place, daemon };
        eventually("dockerd answers", || docker.run("1", &["version"]).status.success());
        docker
    }

    /// Runs Debian's client, for BuildKit where `buildkit` is 1.
    pub fn run(&self, buildkit: &str, words: &[&str]) -> Finished {
        finish(self.client(buildkit).args(words))
    }

    /// The same, to be gone on with.
    pub fn client(&self, buildkit: &str) -> Command {
        let mut command = self.place.command("/usr/bin/docker");
        command.env("DOCKER_BUILDKIT", buildkit).env("HOME", self.place.path("tmp"));
        command.args(["--host", SOCKET]);
        command
    }

    pub fn stop(self) {
        self.daemon.signal(Signal::TERM).unwrap();
        let ended = self.daemon.wait(crate::support::limit()).unwrap();
        assert!(ended.is_some(), "dockerd does not end");
    }
}
