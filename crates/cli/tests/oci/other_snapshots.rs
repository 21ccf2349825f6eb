//! Builds on btrfs and on fuse-overlayfs: the roots of steps cannot be volatile there, and an
//! unmount does not sync them.

use crate::engines::buildkit::{self, BuildKit, ON_CONTAINERD, Worker};
use crate::engines::containerd::Containerd;
use crate::engines::docker::{self, Docker};
use crate::engines::{Given, ImageBuilder, SHORT, Site, stop};
use crate::flushes::FlushDisk;
use crate::images::{self, BOTH, Image, assert_same_layers};
use libtest_mimic::Trial;
use synconce_testkit::harness::{Need, Place, engine, eventually, trial};
use synconce_testkit::process::Group;
use synconce_testkit::rig::{Fault, FsKind};

const BTRFS: Need = Need::Program("mkfs.btrfs", "btrfs-progs");
const FUSE: Need = Need::Program("fuse-overlayfs", "fuse-overlayfs");
const DOCKER_ON_BTRFS: [Need; 4] = [docker::NEEDS[0], docker::NEEDS[1], docker::NEEDS[2], BTRFS];
const DOCKER_BY_FUSE: [Need; 4] = [docker::NEEDS[0], docker::NEEDS[1], docker::NEEDS[2], FUSE];
const BUILDKIT_BY_FUSE: [Need; 5] =
    [buildkit::NEEDS[0], buildkit::NEEDS[1], buildkit::NEEDS[2], buildkit::NEEDS[3], FUSE];
/// Debian's containerd has the snapshotter btrfs, which needs cgo.
const CONTAINERD_ON_BTRFS: [Need; 6] = [
    buildkit::NEEDS[0],
    buildkit::NEEDS[1],
    buildkit::NEEDS[2],
    buildkit::NEEDS[3],
    Need::File("/usr/bin/containerd", "containerd"),
    BTRFS,
];
const CONTAINERD_BY_FUSE: [Need; 7] = [
    buildkit::NEEDS[0],
    buildkit::NEEDS[1],
    buildkit::NEEDS[2],
    buildkit::NEEDS[3],
    Need::File("/usr/bin/containerd", "containerd"),
    FUSE,
    Need::Engine("containerd-fuse-overlayfs-grpc"),
];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(of_docker_on_btrfs_are_the_same_and_synced, &DOCKER_ON_BTRFS),
        trial(of_docker_by_fuse_overlayfs_are_the_same_and_synced, &DOCKER_BY_FUSE),
        trial(of_buildkitd_by_fuse_overlayfs_are_the_same_and_synced, &BUILDKIT_BY_FUSE),
        trial(of_containerd_on_btrfs_are_the_same_and_synced, &CONTAINERD_ON_BTRFS),
        trial(of_containerd_by_fuse_overlayfs_are_the_same_and_synced, &CONTAINERD_BY_FUSE),
    ]
}

/// How often a step syncs.
const SYNCS: u64 = 600;
/// The engine's own flushes vary by less than this number from build to build. A sync(2) of another
/// process flushes every disk of the machine, too.
const FEW: u64 = SYNCS / 2;
/// Syncs of a step whose file is too large to be stored inline in btrfs's metadata: the step writes
/// a byte before each sync.
const MANY: u64 = 5000;

/// Builds and returns an image on `disk` with the runtime `given`. Also asserts, by other builds,
/// that a held sync is no flush, and that a held step fails if its file cannot be written.
fn built(disk: &FlushDisk<'_>, what: &str, given: Given, builder: &impl ImageBuilder) -> Image {
    images::add_tree(disk.place);
    let image = images::built(given, disk.place, builder);
    if given == Given::Us {
        assert_unwritten_fails(disk, what, builder);
    }
    assert_syncs(disk, what, given, builder);
    image
}

/// Asserts that each sync of a step flushes the disk with runc, and that none does with synconce.
fn assert_syncs(disk: &FlushDisk<'_>, what: &str, given: Given, builder: &impl ImageBuilder) {
    let act = |count| disk.build(builder, count);
    let flushes = disk.flushes(&format!("{what}, {given:?}"), &act, SYNCS);
    if given == Given::Runc {
        assert!(flushes >= SYNCS, "{what}: {flushes}");
        return;
    }
    let own = disk.flushes(what, &act, 0);
    assert!(flushes < own + FEW, "{what}: {own} flushes without syncs, {flushes} with {SYNCS}");
}

/// Asserts that a build fails if the file of its step cannot be written at the end of the step.
///
/// Must come before [`assert_syncs`]: btrfs stores the short files of those steps in its metadata,
/// and makes itself read-only if it cannot write metadata.
fn assert_unwritten_fails(disk: &FlushDisk<'_>, what: &str, builder: &impl ImageBuilder) {
    disk.rig.disk().fail(Fault::writes().holding([b'x'; 64])).unwrap();
    let failed = disk.build(builder, MANY);
    disk.rig.disk().recover().unwrap();
    let text = format!("{}{}", failed.stdout, failed.stderr);
    // The step itself succeeds, because each of its syncs is held.
    assert!(text.contains(&format!("synced {MANY}\n")), "{what}: {text}");
    assert!(!failed.status.success(), "{what}: {text}");
}

fn of_docker(place: &Place, fs: FsKind, driver: &str) {
    let disk = FlushDisk::with(place, fs);
    let [bare, held] = BOTH.map(|given| {
        let site = disk.site(given);
        let docker = Docker::with_storage(&site, driver);
        let image = built(&disk, driver, given, &docker.buildkit());
        docker.stop();
        image
    });
    assert_same_layers(driver, &bare, &held);
    assert_as_mounted(place, "docker");
    disk.rig.down().unwrap();
}

/// Asserts that `status` counts roots of `engine` that are no overlay, and no volatile root.
fn assert_as_mounted(place: &Place, engine: &str) {
    let status = place.status(&[]).stdout;
    let is_of = |line: &&str| line.starts_with(&format!("{engine}: "));
    let line = status.lines().find(is_of).unwrap_or_default();
    let why = "with the root as mounted (last reason: it is not a mounted overlay)";
    assert!(line.contains(why) && !line.contains("volatile"), "{status}");
}

fn of_docker_on_btrfs_are_the_same_and_synced(place: &Place) {
    of_docker(place, FsKind::Btrfs, "btrfs");
}

fn of_docker_by_fuse_overlayfs_are_the_same_and_synced(place: &Place) {
    of_docker(place, FsKind::Ext4, "fuse-overlayfs");
}

fn of_buildkitd_by_fuse_overlayfs_are_the_same_and_synced(place: &Place) {
    let disk = FlushDisk::with(place, FsKind::Ext4);
    let [bare, held] = BOTH.map(|given| {
        let site = disk.site(given);
        let buildkit = BuildKit::with_snapshotter(&site, Worker::Oci, "fuse-overlayfs");
        let image = built(&disk, "buildkitd by fuse-overlayfs", given, &buildkit);
        buildkit.stop();
        image
    });
    assert_same_layers("buildkitd by fuse-overlayfs", &bare, &held);
    assert_as_mounted(place, "buildkit");
    disk.rig.down().unwrap();
}

fn of_containerd_on_btrfs_are_the_same_and_synced(place: &Place) {
    let disk = FlushDisk::with(place, FsKind::Btrfs);
    let [bare, held] = BOTH.map(|given| {
        let site = disk.site(given);
        let containerd = Containerd::debians(&site, "");
        let buildkit = BuildKit::with_snapshotter(&site, ON_CONTAINERD, "btrfs");
        let image = built(&disk, "containerd on btrfs", given, &buildkit);
        buildkit.stop();
        containerd.stop();
        image
    });
    assert_same_layers("containerd on btrfs", &bare, &held);
    disk.rig.down().unwrap();
}

/// Configures containerd to use the snapshotter `fuse-overlayfs`, a process of its own. The address
/// of the process follows.
const BY_FUSE: &str = "[proxy_plugins.fuse-overlayfs]\ntype = \"snapshot\"\naddress = ";

/// Here containerd's shim mounts the root, and synconce cannot find the disk of its files. Only
/// sync(2) writes them, and reports no errors: a failed write does not fail the build.
fn of_containerd_by_fuse_overlayfs_are_the_same_and_synced(place: &Place) {
    let disk = FlushDisk::with(place, FsKind::Ext4);
    let what = "containerd by fuse-overlayfs";
    let [bare, held] = BOTH.map(|given| {
        let site = disk.site(given);
        let (snapshotter, socket) = fuse_snapshotter(&site);
        let containerd = Containerd::debians(&site, &format!("{BY_FUSE}{socket:?}\n"));
        let buildkit = BuildKit::with_snapshotter(&site, ON_CONTAINERD, "fuse-overlayfs");
        images::add_tree(place);
        let image = images::built(given, place, &buildkit);
        assert_syncs(&disk, what, given, &buildkit);
        if given == Given::Us {
            assert_written(&disk, &buildkit);
        }
        buildkit.stop();
        containerd.stop();
        stop("the snapshotter", &snapshotter);
        image
    });
    assert_same_layers(what, &bare, &held);
    assert_as_mounted(place, "buildkit");
    disk.rig.down().unwrap();
}

fn fuse_snapshotter(site: &Site<'_>) -> (Group, String) {
    let socket = format!("{SHORT}/fuse");
    let program = engine("containerd-fuse-overlayfs-grpc").unwrap();
    let mut command = site.command(program.to_str().unwrap());
    let snapshotter = Group::spawn(command.arg(&socket).arg(site.storage.join("fuse"))).unwrap();
    eventually("the snapshotter listens", || std::path::Path::new(&socket).exists());
    (snapshotter, socket)
}

/// Asserts that the files of a step are written before its build ends.
fn assert_written(disk: &FlushDisk<'_>, builder: &impl ImageBuilder) {
    disk.rig.disk().fail(Fault::writes().holding([b'x'; 64])).unwrap();
    let build = disk.build(builder, MANY);
    let failed = disk.rig.disk().stats().unwrap().transfers.unwrap().failed_writes;
    disk.rig.disk().recover().unwrap();
    assert!(failed > 0, "{build:?}");
}
