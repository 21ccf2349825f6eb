//! Builds by buildkitd, with each of its workers, whose roots are overlays.

use super::dockerd_on_disk::{DockerdOnDisk, assert_none_volatile, overlays, volatile_roots};
use super::{CHOWN, COPIED, COUNT, FILES, WAIT, begun};
use crate::engines::buildkit::{self, BuildKit, ON_CONTAINERD, Worker};
use crate::engines::containerd::{ADDRESS, Containerd};
use crate::engines::{ImageBuilder, SOCKET, Site};
use libtest_mimic::Trial;
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use synconce_testkit::harness::{Need, Place, StartedCommand, engine, eventually, finish, trial};
use synconce_testkit::process::Finished;

/// Debian's containerd, with configurations of version 2.
const NEEDS_OLD: [Need; 6] = [
    buildkit::NEEDS[0],
    buildkit::NEEDS[1],
    buildkit::NEEDS[2],
    buildkit::NEEDS[3],
    Need::File("/usr/bin/containerd", "containerd"),
    Need::File("/bin/busybox", "busybox-static"),
];

const NEEDS_NERDCTL: [Need; 6] = [
    Need::Engine("nerdctl"),
    buildkit::NEEDS_CONTAINERD[0],
    buildkit::NEEDS_CONTAINERD[1],
    buildkit::NEEDS_CONTAINERD[2],
    buildkit::NEEDS_CONTAINERD[4],
    buildkit::NEEDS_CONTAINERD[5],
];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(hardly_flush, &buildkit::NEEDS),
        trial(on_containerd_hardly_flush, &buildkit::NEEDS_CONTAINERD),
        trial(on_debians_containerd_hardly_flush, &NEEDS_OLD),
        trial(by_nerdctl_hardly_flush_and_its_containers_are_as_before, &NEEDS_NERDCTL),
        trial(that_fail_or_are_cancelled_leave_no_volatile_root, &buildkit::NEEDS_CONTAINERD),
    ]
}

fn hardly_flush(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let buildkit = BuildKit::with_snapshotter(&world.site, Worker::Oci, "overlayfs");
    world.assert_hardly_flush("buildkitd", &buildkit);
    // A step that may mount, and leaves its mounts to the end of its mount namespace.
    let script = "busybox mkdir /m; busybox mount -t tmpfs m /m; busybox mount -o bind /data /m; \
                  busybox chown -R 1:1 /m; busybox grep ' / / ' /proc/self/mountinfo";
    let step = format!("RUN --security=insecure [\"/bin/busybox\", \"sh\", \"-ec\", {script:?}]\n");
    let text = format!("{COPIED}{step}RUN {COUNT}\n");
    let build = world.build(&buildkit, &text, &["--allow", "security.insecure"]);
    let printed = format!("{}{}", build.stdout, build.stderr);
    assert!(build.status.success() && printed.contains("volatile"), "{build:?}");
    assert!(printed.contains(&format!(" {FILES}\n")), "{build:?}");
    assert_none_volatile();
    buildkit.stop();
    world.end();
}

fn on_containerd_hardly_flush(place: &Place) {
    let world = DockerdOnDisk::new(place);
    by(&world, Containerd::start(&world.site), "buildkitd on containerd");
    world.end();
}

fn on_debians_containerd_hardly_flush(place: &Place) {
    let world = DockerdOnDisk::new(place);
    by(&world, Containerd::debians(&world.site, ""), "buildkitd on Debian's containerd");
    world.end();
}

fn by(world: &DockerdOnDisk<'_>, containerd: Containerd<'_>, what: &str) {
    let buildkit = BuildKit::with_snapshotter(&world.site, ON_CONTAINERD, "overlayfs");
    world.assert_hardly_flush(what, &buildkit);
    buildkit.stop();
    containerd.stop();
}

/// nerdctl, which builds by the client of buildkitd and runs containers by containerd.
struct Nerdctl<'a>(&'a Site<'a>);

impl Nerdctl<'_> {
    fn command(&self) -> Command {
        let program = engine("nerdctl").unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = self.0.command(program.to_str().unwrap());
        command.env("PATH", format!("{}:{path}", program.parent().unwrap().display()));
        command.args(["--address", ADDRESS, "--cgroup-manager", "cgroupfs", "--data-root"]);
        command.arg(self.0.storage.join("nerdctl"));
        command
    }

    /// Runs a shell in a container of the image that was built last.
    fn shell(&self, script: &str) -> Finished {
        let mut command = self.command();
        command.args(["run", "--rm", "--net", "none", "--cgroup-parent", &self.0.cgroups.parent()]);
        command.arg("--runtime").arg(self.0.runtime());
        finish(command.args(["probed", "/bin/busybox", "sh", "-ec", script]))
    }
}

impl ImageBuilder for Nerdctl<'_> {
    fn build(&self, options: &[&str]) -> Finished {
        let own = ["--no-cache", "--progress", "plain", "--tag", "probed"];
        let mut command = self.command();
        command.args(["build", "--buildkit-host", SOCKET]).args(own).args(options);
        finish(command.arg("context"))
    }

    fn save(&self) -> PathBuf {
        let to = self.0.storage.with_extension("tar");
        let saved = finish(self.command().args(["save", "--output"]).arg(&to).arg("probed"));
        assert!(saved.status.success(), "{saved:?}");
        to
    }
}

fn by_nerdctl_hardly_flush_and_its_containers_are_as_before(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let containerd = Containerd::start(&world.site);
    let buildkit = BuildKit::with_snapshotter(&world.site, ON_CONTAINERD, "overlayfs");
    let nerdctl = Nerdctl(&world.site);
    world.assert_hardly_flush("nerdctl", &nerdctl);
    let run = nerdctl.shell(
        "busybox grep ' / / ' /proc/self/mountinfo; \
         busybox find /data -type f -user 1 | busybox wc -l",
    );
    assert!(run.stdout.ends_with(&format!("\n{FILES}\n")), "{run:?}");
    assert!(run.stdout.contains(" overlay ") && !run.stdout.contains("volatile"), "{run:?}");
    buildkit.stop();
    containerd.stop();
    world.end();
}

fn that_fail_or_are_cancelled_leave_no_volatile_root(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let containerd = Containerd::start(&world.site);
    for worker in [Worker::Oci, ON_CONTAINERD] {
        let buildkit = BuildKit::with_snapshotter(&world.site, worker, "overlayfs");
        let start = |step: &str| {
            place.write("context/Dockerfile", &format!("{CHOWN}RUN {step}\n"));
            StartedCommand::new(&mut buildkit.command(&[]))
        };
        let failed = start("[\"/bin/busybox\", \"false\"]");
        assert!(!failed.end().success());
        let text = failed.text();
        assert!(text.contains("exit code: 1"), "{text}");
        assert_none_volatile();
        let cancelled = start(WAIT);
        begun();
        cancelled.signal(Signal::INT).unwrap();
        assert!(!cancelled.end().success());
        eventually("no root is volatile", || volatile_roots().is_empty());
        let text = format!("{CHOWN}RUN {COUNT}\n");
        let build = world.build(&buildkit, &text, &[]);
        let printed = format!("{}{}", build.stdout, build.stderr);
        assert!(printed.contains(&format!(" {FILES}\n")), "{worker:?}: {build:?}");
        assert_none_volatile();
        buildkit.stop();
        eventually("the roots are unmounted", || overlays().is_empty());
    }
    containerd.stop();
    world.end();
}
