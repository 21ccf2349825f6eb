//! Places and shells where syncs are skipped already.

use crate::support::{doctor, findings, report, rig};
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, mount};
use std::env::consts::ARCH;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use synconce_testkit::harness::{Need, Place, binary, trial};
use synconce_testkit::rig::FsKind;

static LIBRARY: LazyLock<String> =
    LazyLock::new(|| format!("/usr/lib/{ARCH}-linux-gnu/libeatmydata.so"));

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            eatmydata_is_named_in_place_of_the_syncs_that_it_skips,
            &[Need::File(&LIBRARY, "libeatmydata1")],
        ),
        trial(inside_a_run_nothing_is_left_to_change, &[]),
        trial(dpkg_that_skips_syncs_waits_less, &[]),
    ]
}

fn eatmydata_is_named_in_place_of_the_syncs_that_it_skips(place: &Place) {
    let rig = rig(FsKind::Ext4, 8);
    let mut doctor = doctor(place, rig.path(), &[]);
    let (report, ended) = report(rig.path(), doctor.env("LD_PRELOAD", LIBRARY.as_str()));
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(findings(&report), ["eatmydata"], "{report:#}");
    // The library does not reach the measurement.
    assert!(report["measured"]["overwrite"]["fastest"].as_f64() > Some(7_500.0), "{report:#}");
}

fn inside_a_run_nothing_is_left_to_change(place: &Place) {
    let rig = rig(FsKind::Ext4, 8);
    let path = rig.path().to_str().unwrap();
    for sealed in [&[][..], &["--sealed"]] {
        let options = [&["--no-commit"][..], sealed].concat();
        let mut held = place.held(&options, &[binary(), "doctor", path]);
        let (report, ended) = report(rig.path(), &mut held);
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(findings(&report), [""; 0], "{report:#}");
        let verdict = report["verdict"].as_str().unwrap();
        assert!(verdict.ends_with("synconce run holds the syncs already"), "{verdict}");
        assert_eq!(report["in_force"][0]["name"], "synconce run");
        assert_eq!(report["measured"]["fsync"], serde_json::Value::Null);
    }
}

fn dpkg_that_skips_syncs_waits_less(place: &Place) {
    let rig = rig(FsKind::Ext4, 8);
    // The settings of this machine's dpkg do not count in this mount namespace.
    let directory = Path::new("/etc/dpkg");
    fs::create_dir_all(directory).unwrap();
    mount("none", directory, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::create_dir(directory.join("dpkg.cfg.d")).unwrap();
    fs::write(directory.join("dpkg.cfg.d/docker"), "# a comment\nforce-unsafe-io\n").unwrap();
    let mut doctor = doctor(place, rig.path(), &[]);
    let (report, _) = report(rig.path(), doctor.env("HOME", "/none"));
    assert_eq!(findings(&report)[0], "slow-sync", "{report:#}");
    let cause = report["findings"][0]["cause"].as_str().unwrap();
    assert!(cause.contains("2,100 flushes in spite of force-unsafe-io"), "{cause}");
    assert_eq!(report["in_force"][0]["skipping"], "of_dpkg", "{report:#}");
}
