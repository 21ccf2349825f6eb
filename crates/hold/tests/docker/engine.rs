//! A dockerd with storage of its own, by the driver overlay2.

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_testkit::harness::{Cgroups, Need, Place, finish, limit, until_dockerd_answers};
use synconce_testkit::isolation::empty;
use synconce_testkit::process::{Finished, Group};
use synconce_testkit::rig::Rig;

pub const NEEDS: [Need; 3] = [
    Need::Program("dockerd", "docker.io"),
    Need::File("/usr/bin/docker", "docker.io"),
    Need::File("/bin/busybox", "busybox-static"),
];

/// A directory in memory, of this test alone. The path is short, because the length of a
/// socket's path is limited.
const SHORT: &str = "/run/engine";

/// A running dockerd.
pub struct Dockerd<'a> {
    place: &'a Place,
    daemon: Group,
}

/// Makes the directories that dockerd keeps for the whole machine, for this test alone. Returns its
/// control groups, and a disk with its data directory.
pub fn prepare(place: &Place) -> (Cgroups, Rig, PathBuf, Unmounted) {
    let _ = unmount("/sys/fs/cgroup/unified", UnmountFlags::DETACH);
    for shared in ["/run", "/var/lib", "/etc/docker"] {
        empty(Path::new(shared));
    }
    for directory in [PathBuf::from(SHORT), place.path("tmp"), place.path("context")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    let image = "mkdir -p root/bin && cp /bin/busybox root/bin/ && ln -s busybox root/bin/sh && \
                 tar --create --file=base.tar --directory=root .";
    let made = finish(place.command("sh").args(["-ec", image]));
    assert!(made.status.success(), "{made:?}");
    let cgroups = Cgroups::unique();
    let rig = Rig::builder().up().unwrap();
    let root = rig.path().join("docker");
    let unmounted = Unmounted(root.clone());
    (cgroups, rig, root, unmounted)
}

impl<'a> Dockerd<'a> {
    /// Starts dockerd with the data directory `root`.
    pub fn start(place: &'a Place, root: &Path, cgroups: &Cgroups) -> Self {
        let mut command = command(place, "dockerd");
        command.arg("--data-root").arg(root).args([
            "--exec-root=/run/engine/exec",
            "--host=unix:///run/engine/socket",
            "--pidfile=/run/engine/pid",
            "--storage-driver=overlay2",
            "--bridge=none",
            "--iptables=false",
        ]);
        command.args(["--cgroup-parent", &cgroups.parent()]);
        command.arg("--config-file").arg(place.write("daemon.json", "{}"));
        let docker = Self { place, daemon: Group::spawn(&mut command).unwrap() };
        until_dockerd_answers("unix:///run/engine/socket");
        docker
    }

    /// Runs `docker WORDS` to its end.
    pub fn client(&self, words: &[&str]) -> Finished {
        let mut command = command(self.place, "/usr/bin/docker");
        command.env("DOCKER_BUILDKIT", "1").env("BUILDKIT_PROGRESS", "plain");
        finish(command.args(["--host", "unix:///run/engine/socket"]).args(words))
    }

    /// Runs `docker WORDS`, and returns what it prints. Panics if it fails.
    pub fn works(&self, words: &[&str]) -> String {
        let finished = self.client(words);
        let log = || self.daemon.stderr().unwrap();
        assert!(finished.status.success(), "{words:?}: {finished:?}\n{}", log());
        finished.stdout.trim_end().to_owned()
    }

    /// Stops dockerd, and returns what it has written.
    pub fn stop(self) -> String {
        self.daemon.signal(Signal::TERM).unwrap();
        let status = self.daemon.wait(limit()).unwrap();
        let log = self.daemon.stderr().unwrap();
        assert!(status.is_some_and(|status| status.success()), "{status:?}\n{log}");
        log
    }
}

/// Detaches what is mounted below a directory when dropped: a dockerd that a failed test kills
/// leaves its mounts, and the disk below would stay busy.
pub struct Unmounted(pub PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let mounts = synconce_probe::mounts::read("self").unwrap_or_default();
        for mount in mounts.iter().rev().filter(|mount| mount.point.starts_with(&self.0)) {
            let _ = unmount(&mount.point, UnmountFlags::DETACH);
        }
    }
}

fn command(place: &Place, program: &str) -> Command {
    let mut command = place.command(program);
    command.env("TMPDIR", place.path("tmp")).env("HOME", place.path("tmp"));
    command
}
