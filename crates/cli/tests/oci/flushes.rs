//! The flushes of the disk on which an engine keeps images and containers, counted by the rig.

use crate::engines::buildkit::{BuildKit, ON_CONTAINERD, Worker};
use crate::engines::containerd::Containerd;
use crate::engines::daemonless::{Buildah, Podman};
use crate::engines::docker::Docker;
use crate::engines::{Given, HOLD, ImageBuilder, Site, prepare, report};
use synconce_testkit::harness::Place;
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{FsKind, Rig};

/// How often a container syncs.
const SYNCS: u64 = 2000;
/// The engine's own flushes vary by less than this number from run to run. A sync(2) of
/// another process flushes every disk of the machine, too.
const FEW: u64 = SYNCS / 4;

/// A disk that counts its flushes, beside the context of a build.
pub struct FlushDisk<'a> {
    pub place: &'a Place,
    pub rig: Rig,
}

impl<'a> FlushDisk<'a> {
    fn new(place: &'a Place) -> Self {
        Self::with(place, FsKind::Ext4)
    }

    /// Makes a disk with the file system `fs`.
    pub fn with(place: &'a Place, fs: FsKind) -> Self {
        prepare(place);
        Self { place, rig: Rig::builder().fs(fs).size(1 << 30).passthrough(false).up().unwrap() }
    }

    /// Makes a site whose engine stores everything on the disk.
    pub fn site(&self, given: Given) -> Site<'a> {
        Site::with(self.place, given, &self.rig.path().join(format!("{given:?}")))
    }

    /// Builds an image by one step that syncs `count` times.
    pub fn build(&self, builder: &impl ImageBuilder, count: u64) -> Finished {
        let run = format!("RUN {}", serde_json::json!(words(count)));
        self.place.write("context/Dockerfile", &format!("FROM scratch\nCOPY step /\n{run}\n"));
        builder.build(&[])
    }

    /// Returns the flushes of the disk while `act` syncs `count` times.
    pub fn flushes(&self, what: &str, act: &impl Fn(u64) -> Finished, count: u64) -> u64 {
        let flushes = || self.rig.disk().stats().unwrap().flushes;
        let before = flushes();
        let finished = act(count);
        let flushes = flushes() - before;
        let output = finished.stdout + &finished.stderr;
        assert!(finished.status.success(), "{what}: {output}");
        assert!(output.contains(&format!("synced {count}\n")), "{what}: {output}");
        report(&format!("{what}: {flushes} flushes, {count} syncs"));
        flushes
    }

    /// Asserts that the syncs of `act` add nothing to the engine's own flushes.
    fn free(&self, what: &str, act: impl Fn(u64) -> Finished) {
        let own = self.flushes(what, &act, 0);
        let with = self.flushes(what, &act, SYNCS);
        assert!(with < own + FEW, "{what}: {own} flushes without syncs, {with} with {SYNCS}");
    }

    /// Asserts that each sync of `act` flushes the disk.
    fn real(&self, what: &str, act: impl Fn(u64) -> Finished) {
        let flushes = self.flushes(what, &act, SYNCS);
        assert!(flushes >= SYNCS, "{what}: {flushes} flushes of {SYNCS} syncs");
    }

    /// Asserts that the syncs of the builder's step are free with synconce, and real with
    /// runc.
    fn of(&self, what: &str, given: Given, builder: &impl ImageBuilder) {
        let act = |count| self.build(builder, count);
        match given {
            Given::Us => self.free(what, act),
            Given::Runc => self.real(&format!("{what} by runc"), act),
        }
    }
}

fn words(count: u64) -> [String; 4] {
    ["/step", "syncs", "/synced", &count.to_string()].map(str::to_owned)
}

/// Returns a function that calls `run` with the command of a container. The argument of the
/// function is the number of syncs.
fn syncing(run: impl Fn(&[&str]) -> Finished) -> impl Fn(u64) -> Finished {
    move |count| run(&words(count).each_ref().map(String::as_str))
}

pub fn of_podman_and_buildah(place: &Place) {
    let disk = FlushDisk::new(place);
    for given in [Given::Us, Given::Runc] {
        let site = disk.site(given);
        disk.of("buildah bud", given, &Buildah(&site));
        let podman = Podman(&site);
        disk.of("podman build", given, &podman);
        disk.real("podman run", syncing(|words| podman.run(&[], words)));
        if given == Given::Us {
            let ask = ["--annotation", HOLD];
            disk.free("podman run that asks", syncing(|words| podman.run(&ask, words)));
        }
    }
    disk.rig.down().unwrap();
}

pub fn of_docker(place: &Place) {
    let disk = FlushDisk::new(place);
    for given in [Given::Us, Given::Runc] {
        let site = disk.site(given);
        let docker = Docker::start(&site);
        disk.of("dockerd's BuildKit", given, &docker.buildkit());
        disk.of("dockerd's classic builder", given, &docker.classic());
        disk.real("docker run", syncing(|words| docker.run(&[], words)));
        if given == Given::Us {
            disk.free(
                "docker run that asks",
                syncing(|words| docker.run(&["--label", HOLD], words)),
            );
        }
        docker.stop();
    }
    disk.rig.down().unwrap();
}

pub fn of_buildkit(place: &Place) {
    let disk = FlushDisk::new(place);
    for given in [Given::Us, Given::Runc] {
        let site = disk.site(given);
        let buildkit = BuildKit::start(&site, Worker::Oci);
        disk.of("buildkitd", given, &buildkit);
        buildkit.stop();
    }
    disk.rig.down().unwrap();
}

pub fn of_containerd(place: &Place) {
    let disk = FlushDisk::new(place);
    for given in [Given::Us, Given::Runc] {
        let site = disk.site(given);
        let containerd = Containerd::start(&site);
        disk.real("ctr run", syncing(|words| containerd.run(&[], words)));
        let buildkit = BuildKit::start(&site, ON_CONTAINERD);
        disk.of("buildkitd on containerd", given, &buildkit);
        buildkit.stop();
        containerd.stop();
    }
    disk.rig.down().unwrap();
}
