//! `synconce doctor --docker` on other storage than the kernel's overlay on ext4: the planted cause
//! is named first.

use crate::doctor::{archive, first, latency, report};
use crate::engines::docker::{self, Docker};
use crate::engines::{Given, Site, prepare};
use libtest_mimic::Trial;
use serde_json::Value;
use synconce_testkit::harness::{Need, Place, trial};
use synconce_testkit::rig::{FsKind, Rig};

pub fn trials() -> Vec<Trial> {
    let of = |program| [docker::NEEDS[0], docker::NEEDS[1], docker::NEEDS[2], program];
    let btrfs = of(Need::Program("mkfs.btrfs", "btrfs-progs"));
    let fuse = of(Need::Program("fuse-overlayfs", "fuse-overlayfs"));
    vec![
        trial(causes_of_docker_on_btrfs_are_named_first, &btrfs),
        trial(causes_of_docker_by_fuse_overlayfs_are_named_first, &fuse),
    ]
}

/// Returns the report about a dockerd with `driver` and three layers, on `fs` with a flush of 8 ms,
/// and without.
fn reports(place: &Place, fs: FsKind, driver: &str) -> [Value; 2] {
    let rig = Rig::builder().fs(fs).size(2 << 30).up().unwrap();
    let site = Site::with(place, Given::Runc, rig.path());
    let engine = Docker::with_storage(&site, driver);
    engine.import(&archive(place), "base");
    let made = engine.client("1", &["create", "base", "/none"]);
    assert!(made.status.success(), "{made:?}");
    let reports = [8, 0].map(|flush| {
        rig.disk().set_latency(latency(flush)).unwrap();
        let report = report(place, "--docker", &rig.path().join("docker"));
        rig.disk().set_latency(latency(0)).unwrap();
        assert_eq!(report["engine"]["storage_driver"], driver, "{report:#}");
        // Of the image; of the container, one to begin with and one to write.
        assert_eq!(report["engine"]["layers"], 3, "{report:#}");
        report
    });
    engine.stop();
    reports
}

fn names(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["name"].as_str().unwrap()).collect()
}

fn causes_of_docker_on_btrfs_are_named_first(place: &Place) {
    prepare(place);
    for (driver, backing) in [("btrfs", None), ("overlay2", Some("btrfs"))] {
        let [slow_disk, fast] = reports(place, FsKind::Btrfs, driver);
        // A copy-up that clones the file does not sync (`ovl_copy_up_file` in
        // fs/overlayfs/copy_up.c).
        assert_eq!(names(&slow_disk), ["slow-sync"], "{driver}: {slow_disk:#}");
        let copy_up = slow_disk["measured"]["layers"]["file"]["quarter"].as_f64();
        assert_eq!(copy_up.is_some(), driver == "overlay2", "{driver}: {slow_disk:#}");
        assert!(copy_up < Some(7_500.0), "{driver}: {slow_disk:#}");
        let finding = &slow_disk["findings"][0];
        assert_eq!(finding["remedy"], "synconce setup docker", "{driver}");
        // Each sync of btrfs flushes the disk at least once.
        assert!(finding["seconds"].as_f64() > Some(14.0), "{driver}: {finding:#}");
        assert_eq!(slow_disk["place"]["type_name"], "btrfs", "{slow_disk:#}");
        assert_eq!(slow_disk["engine"]["backing"].as_str(), backing, "{slow_disk:#}");
        // The driver copies no files. The disk is one in memory, and its flushes may be too fast.
        let others: Vec<_> =
            names(&fast).into_iter().filter(|name| *name != "flushes-ignored").collect();
        assert_eq!(others, [""; 0], "{driver}: {fast:#}");
    }
}

fn causes_of_docker_by_fuse_overlayfs_are_named_first(place: &Place) {
    prepare(place);
    let [slow, fast] = reports(place, FsKind::Ext4, "fuse-overlayfs");
    assert_eq!(names(&slow), ["slow-sync", "fuse-overlayfs"], "{slow:#}");
    assert_eq!(first(&fast), "fuse-overlayfs", "{fast:#}");
    let remedy = fast["findings"][0]["remedy"].as_str().unwrap();
    assert!(remedy.starts_with("set \"storage-driver\": \"overlay2\" in "), "{remedy}");
}
