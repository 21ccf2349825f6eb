//! Podman and Buildah, which have no daemon.

use super::{
    HOLD, ImageBuilder, LIMITS, SHORT, STEPS, Site, USERS, add_synconce, assert_bare, assert_held,
    assert_steps_bare, assert_steps_held, prepare,
};
use std::path::PathBuf;
use std::process::Command;
use synconce_testkit::harness::Need;
use synconce_testkit::harness::{Place, finish};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::Rig;

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
pub const BOTH: [Need; 4] = [BUILDAH[0], PODMAN[0], PODMAN[1], PODMAN[2]];
pub const CRUN: [Need; 4] = [BUILDAH[0], PODMAN[0], Need::Program("crun", "crun"), PODMAN[2]];

/// Options of both builders; the fixed time makes images comparable.
const BUILD: [&str; 5] = ["--network", "none", "--no-cache", "--timestamp", "0"];

pub struct Buildah<'a>(pub &'a Site<'a>);

pub struct Podman<'a>(pub &'a Site<'a>);

/// Returns the command `program`, with state of its own.
fn stored(site: &Site<'_>, program: &str) -> Command {
    let mut command = site.command(program);
    command.args(["--storage-driver", site.driver, "--root"]).arg(&site.storage);
    command.args(["--runroot", SHORT]);
    command
}

/// Returns the path for an archive. An existing archive is removed, because neither program
/// adds to one.
fn archive(site: &Site<'_>) -> PathBuf {
    let to = site.storage.with_extension("tar");
    let _ = std::fs::remove_file(&to);
    to
}

impl ImageBuilder for Buildah<'_> {
    fn build(&self, options: &[&str]) -> Finished {
        let mut command = self.command();
        command.args(["bud", "--isolation", "oci", "--runtime"]).arg(self.0.runtime()).args(BUILD);
        command.args(["--cgroup-parent", &self.0.cgroups.step()]);
        finish(command.args(options).args(["--tag", "probed", "context"]))
    }

    fn save(&self) -> PathBuf {
        let to = archive(self.0);
        let target = format!("docker-archive:{}", to.display());
        let saved = finish(self.command().args(["push", "probed", &target]));
        assert!(saved.status.success(), "{saved:?}");
        to
    }
}

impl Buildah<'_> {
    /// Returns the command `buildah`, with state of its own.
    pub fn command(&self) -> Command {
        stored(self.0, "buildah")
    }

    /// Returns `run` in the working container `name`, without the command's words.
    pub fn running(&self, name: &str) -> Command {
        let mut command = self.command();
        command.args(["run", "--isolation", "oci", "--network", "none", "--runtime"]);
        command.arg(self.0.runtime()).args([name, "--"]);
        command
    }
}

impl Podman<'_> {
    /// Returns the command `podman`, with the site's runtime and control groups.
    pub fn command(&self) -> Command {
        let mut command = stored(self.0, "podman");
        command.args(["--cgroup-manager", "cgroupfs", "--runtime"]).arg(self.0.runtime());
        command
    }

    /// Runs `words` in a container of the image `probed` to their end.
    pub fn run(&self, options: &[&str], words: &[&str]) -> Finished {
        finish(self.command().args(self.running(options)).arg("probed").args(words))
    }

    /// Returns `run` and its options.
    pub fn running(&self, options: &[&str]) -> Vec<String> {
        let parent = self.0.cgroups.parent();
        let own = ["run", "--rm", "--network", "none", "--cgroup-parent", &parent];
        let words = own.iter().chain(&LIMITS).chain(options);
        words.map(|word| (*word).to_owned()).collect()
    }

    /// Returns `build`, its options and the name of the image.
    pub fn building(&self, options: &[&str]) -> Vec<String> {
        let own = ["build", "--cgroup-parent", &self.0.cgroups.step()];
        let words = own.iter().chain(&BUILD).chain(options);
        words.chain(&["--tag", "probed", "context"]).map(|word| (*word).to_owned()).collect()
    }
}

impl ImageBuilder for Podman<'_> {
    fn build(&self, options: &[&str]) -> Finished {
        finish(self.command().args(self.building(options)))
    }

    fn save(&self) -> PathBuf {
        let to = archive(self.0);
        let mut command = self.command();
        command.args(["save", "--format", "docker-archive", "--output"]).arg(&to).arg("probed");
        let saved = finish(&mut command);
        assert!(saved.status.success(), "{saved:?}");
        to
    }
}

const UNCONFINED: [&str; 2] = ["--security-opt", "seccomp=unconfined"];

pub fn buildahs_steps_are_held(place: &Place) {
    prepare(place);
    let site = Site::new(place);
    let buildah = Buildah(&site);
    for options in [&[][..], &UNCONFINED, &["--cap-add", "SYS_ADMIN"]] {
        assert_steps_held(&format!("bud {options:?}"), &buildah.build(options), USERS);
    }
}

pub fn podmans_steps_are_held_and_its_containers_are_not(place: &Place) {
    prepare(place);
    let site = Site::new(place);
    let podman = Podman(&site);
    for options in [&[][..], &UNCONFINED, &["--cap-add", "SYS_ADMIN"]] {
        assert_steps_held(&format!("build {options:?}"), &podman.build(options), USERS);
    }
    let run = |options: &[&str]| podman.run(options, &["/probe"]);
    // No name that a user may choose turns a container into a step of a build.
    assert_bare("run", &run(&["--hostname", "buildkitsandbox", "--name", "buildah-buildah1"]));
    let ask = ["--annotation", HOLD];
    for options in [&[][..], &["--privileged"], &UNCONFINED, &["--user", "0"], &["--user", "1000"]]
    {
        assert_bare(&format!("run {options:?}"), &run(options));
        assert_held(&format!("asked for {options:?}"), &run(&[options, &ask].concat()));
    }
    assert_steps_held("a build", &podman.build(&ask), USERS);
    assert_bare("an image cannot ask", &run(&[]));
    a_step_that_can_write_to_the_host_is_bare(&podman, place);
}

/// crun is the default of Podman in Debian.
pub fn buildahs_and_podmans_steps_are_held_with_crun(place: &Place) {
    prepare(place);
    let site = Site::new(place).named("crun");
    let version = finish(site.command(site.runtime().to_str().unwrap()).arg("--version"));
    assert!(version.stdout.starts_with("crun version "), "{version:?}");
    let podman = Podman(&site);
    for runs_in_steps in [false, true] {
        if runs_in_steps {
            add_synconce(place);
        }
        assert_steps_held("bud", &Buildah(&site).build(&[]), USERS);
        assert_steps_held("build", &podman.build(&[]), USERS);
    }
    let run = |options: &[&str]| podman.run(options, &["/probe"]);
    for options in [&[][..], &["--privileged"], &UNCONFINED, &["--user", "0"]] {
        assert_bare(&format!("run {options:?}"), &run(options));
        let asked = run(&[options, &["--annotation", HOLD]].concat());
        assert_held(&format!("asked for {options:?}"), &asked);
    }
}

fn a_step_that_can_write_to_the_host_is_bare(podman: &Podman<'_>, place: &Place) {
    let build = |volume: &str, mode: &str| {
        podman.build(&["--volume", &format!("{}:/data:{mode}", place.text(volume))])
    };
    for volume in ["host", "buildah2024/db", "web-containers/db"] {
        std::fs::create_dir_all(place.path(volume)).unwrap();
        assert_steps_bare(&format!("to write {volume}"), &build(volume, "rw"), USERS);
        assert_steps_held(&format!("to read {volume}"), &build(volume, "ro"), USERS);
    }
    let disk = Rig::builder().up().unwrap();
    std::fs::create_dir_all(disk.path().join("dev/project")).unwrap();
    let volume = format!("{}:/data:rw", disk.path().join("dev/project").display());
    assert_steps_bare("to write a disk", &podman.build(&["--volume", &volume]), USERS);
    disk.down().unwrap();
    let cached = STEPS.replace("RUN", "RUN --mount=type=cache,target=/cache");
    place.write("context/Dockerfile", &cached);
    assert_steps_bare("with a cache", &podman.build(&[]), USERS);
    place.write("context/Dockerfile", STEPS);
}
