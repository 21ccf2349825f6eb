//! Slow and odd disks.

use crate::support::{doctor, findings, healthy, names, report, rig};
use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, unmount};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::Duration;
use synconce_testkit::harness::{Place, finish, trial, trials_on};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{FsKind, Latency, Limits, Rig};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial(a_disk_that_ignores_flushes_is_named, &[]),
        trial(a_slow_bandwidth_is_named_first, &[]),
        trial(slow_names_are_named_first, &[]),
        trial(a_place_without_a_cause_needs_two_lines_ten_times_of_ten, &[]),
        trial(the_copy_up_of_an_overlay_is_named_and_a_volatile_one_needs_nothing, &[]),
        trial(a_full_disk_is_named_first_and_not_measured, &[]),
        trial(a_small_empty_disk_is_not_called_full, &[]),
        trial(a_read_only_place_is_an_error_with_a_hint, &[]),
    ];
    trials.extend(trials_on(&FsKind::ALL, slow_flushes_are_named_first, &[]));
    trials
}

/// The least time of a flush of 8 ms, in microseconds: the kernel may count a little less.
const LEAST_FLUSH: f64 = 7_500.0;

fn slow_flushes_are_named_first(place: &Place, fs: FsKind) {
    let rig = rig(fs, 8);
    let before = rig.disk().stats().unwrap().flushes;
    let (report, ended) = report(rig.path(), &mut doctor(place, rig.path(), &["--fail-on", "10"]));
    let flushes = rig.disk().stats().unwrap().flushes - before;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert_eq!(findings(&report)[0], "slow-sync", "{report:#}");
    let first = &report["findings"][0];
    // 2,100 flushes at least, also where dpkg's force-unsafe-io is in force.
    assert!(first["seconds"].as_f64() > Some(14.0), "{first:#}");
    assert!(first["remedy"].as_str().unwrap().starts_with("synconce run -- "), "{first:#}");
    assert_eq!(report["place"]["type_name"], fs.name());
    assert_eq!(report["place"]["devices"][0]["write_cache"], "write back", "{report:#}");
    let measured = &report["measured"];
    assert!(measured["flushes"]["mean"].as_f64() > Some(LEAST_FLUSH), "{measured:#}");
    assert!(measured["flushes"]["share"].as_f64() > Some(0.0), "{measured:#}");
    assert!(measured["overwrite"]["fastest"].as_f64() > Some(LEAST_FLUSH), "{measured:#}");
    // Each sync has waited for at least one flush.
    let syncs = ["fsync", "fdatasync", "overwrite"].map(|it| &measured[it]["samples"]);
    let syncs: u64 = syncs.iter().map(|samples| samples.as_u64().unwrap()).sum();
    assert!(flushes >= syncs && syncs > 3, "{flushes} {measured:#}");
}

fn a_disk_that_ignores_flushes_is_named(place: &Place) {
    let rig = rig(FsKind::Ext4, 0);
    let report = healthy(place, rig.path());
    assert_eq!(findings(&report), ["flushes-ignored"], "{report:#}");
    assert!(report["verdict"].as_str().unwrap().contains("may reach no medium"), "{report:#}");
}

/// Measures a disk that writes 8 MB a second, and takes 8 ms for a flush; returns the report.
fn a_slow_bandwidth_is_named_first(place: &Place) {
    let limits = Limits { written_bytes: Some(8_000_000), ..Limits::NONE };
    let latency = Latency::of_flush(Duration::from_millis(8));
    let rig = Rig::builder().limits(limits).latency(latency).up().unwrap();
    let (report, ended) = report(rig.path(), &mut doctor(place, rig.path(), &["--full"]));
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(findings(&report)[0], "slow-writes", "{report:#}");
    let rate = |name: &str| report["measured"][name]["bytes_per_second"].as_f64();
    // What is in flight at the end is written, too.
    assert!(rate("sequential") < Some(16e6) && rate("random") < Some(16e6), "{report:#}");
    // Each sync of each writer waits for at least one flush.
    let all = report["measured"]["at_once"].as_array().unwrap();
    let writers: Vec<_> = all.iter().map(|it| it["writers"].as_u64().unwrap()).collect();
    assert_eq!(writers, [1, 2, 3], "{report:#}");
    let most = Some(1e6 / LEAST_FLUSH);
    let is_slow =
        |it: &Value| it["per_second"].as_f64() > Some(0.0) && it["per_second"].as_f64() < most;
    assert!(all.iter().all(is_slow), "{report:#}");
}

/// Asserts that `rig`, whose flush takes 8 ms, is slow because of the mount option `option`, and
/// returns the remedy.
fn slow_names_of(place: &Place, rig: &Rig, option: &str) -> String {
    let report = healthy(place, rig.path());
    assert_eq!(findings(&report)[..2], ["slow-names", "slow-sync"], "{report:#}");
    let quarter = &report["measured"]["names"]["create"]["quarter"];
    assert!(quarter.as_f64() > Some(LEAST_FLUSH), "{report:#}");
    let finding = &report["findings"][0];
    // 10,000 flushes of 8 ms, less the 2 s of a usual disk.
    assert!(finding["seconds"].as_f64() > Some(70.0), "{finding:#}");
    let cause = format!("{option} is a mount option: most new files take at least ");
    assert!(finding["cause"].as_str().unwrap().starts_with(&cause), "{finding:#}");
    finding["remedy"].as_str().unwrap().to_owned()
}

fn slow_names_are_named_first(place: &Place) {
    // Each new name waits for the disk.
    let latency = Latency::of_flush(Duration::from_millis(8));
    let dirsync = Rig::builder().mount_options("dirsync").latency(latency).up().unwrap();
    let remedy = slow_names_of(place, &dirsync, "dirsync");
    assert!(remedy.ends_with(": a remount keeps dirsync"), "{remedy}");
    drop(dirsync);
    let sync = rig(FsKind::Ext4, 8);
    sync.remount("sync").unwrap();
    let remedy = slow_names_of(place, &sync, "sync");
    // The options of its file system.
    let is_sync = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let point = format!(" {} ", sync.path().display());
        let line = mounts.lines().find(|line| line.contains(&point)).unwrap();
        line.rsplit(' ').next().unwrap().split(',').any(|option| option == "sync")
    };
    assert!(is_sync());
    let typed = finish(place.command("sh").args(["-ec", &remedy]));
    assert!(typed.status.success() && !is_sync(), "{typed:?}");
}

fn a_place_without_a_cause_needs_two_lines_ten_times_of_ten(place: &Place) {
    let memory = Path::new("/dev/shm");
    for _ in 0..10 {
        let ended = two_lines(place, memory, "nothing to change: tmpfs is in memory");
        // Neither a bar nor a carriage return outside of a terminal.
        let notice = ended.stderr.strip_prefix("synconce: temporary files of at most ").unwrap();
        assert!(notice.ends_with(" in /dev/shm, removed at the end\n"), "{ended:?}");
        assert_eq!(notice.lines().count(), 1, "{ended:?}");
    }
    assert_eq!(findings(&healthy(place, memory)), [""; 0]);
    // A disk whose flush takes no time. There is nothing to change.
    let rig = rig(FsKind::Ext4, 0);
    for _ in 0..10 {
        two_lines(place, rig.path(), "may reach no medium");
    }
}

/// Asserts that the report about `path` has two lines, the first with `verdict`.
fn two_lines(place: &Place, path: &Path, verdict: &str) -> Finished {
    let ended = finish(&mut doctor(place, path, &["--quick", "--fail-on", "1"]));
    assert!(ended.status.success(), "{ended:?}");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{ended:?}");
    assert!(lines[0].contains(verdict), "{ended:?}");
    ended
}

fn the_copy_up_of_an_overlay_is_named_and_a_volatile_one_needs_nothing(place: &Place) {
    const FILES: u64 = 10;
    let rig = rig(FsKind::Ext4, 8);
    let lower = rig.path().join("lower");
    fs::create_dir(&lower).unwrap();
    for at in 0..FILES {
        fs::write(rig.path().join(format!("lower/file{at}")), "data").unwrap();
    }
    let merged = place.overlay(&lower, rig.path(), ",metacopy=off");
    let ended = finish(&mut doctor(place, &merged, &[]));
    assert!(ended.status.success(), "{ended:?}");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.first(), lines.last(), "{ended:?}");
    assert!(lines[0].contains(": overlay-copy-up costs at least "), "{ended:?}");
    // It is as the report says.
    let before = rig.disk().stats().unwrap().flushes;
    for at in 0..FILES {
        chown(merged.join(format!("file{at}")), Some(1), None).unwrap();
    }
    let flushes = rig.disk().stats().unwrap().flushes - before;
    assert!(flushes >= FILES, "{flushes} flushes for {FILES} files");

    unmount(&merged, UnmountFlags::empty()).unwrap();
    let merged = place.overlay(&lower, rig.path(), ",volatile");
    let report = healthy(place, &merged);
    assert_eq!(findings(&report), [""; 0], "{report:#}");
    assert!(report["verdict"].as_str().unwrap().contains("overlay is volatile"), "{report:#}");
    unmount(&merged, UnmountFlags::empty()).unwrap();
}

fn a_full_disk_is_named_first_and_not_measured(place: &Place) {
    let rig = Rig::builder().size(64 << 20).up().unwrap();
    rig.fill(1 << 20).unwrap();
    let report = healthy(place, rig.path());
    assert_eq!(findings(&report)[0], "full", "{report:#}");
    assert_eq!(report["measured"]["fsync"], Value::Null);
    assert_eq!(report["not_measured"][0]["what"], "syncs, names and writes");
}

fn a_small_empty_disk_is_not_called_full(place: &Place) {
    // Such a disk has 4,096 inodes.
    let rig = Rig::builder().size(16 << 20).up().unwrap();
    let report = healthy(place, rig.path());
    assert_eq!(findings(&report), [""; 0], "{report:#}");
    let wanted =
        format!("{}: nothing was measured: the file system is too small", rig.path().display());
    assert_eq!(report["verdict"], wanted);
    let why = "the file system is too small for temporary files";
    assert_eq!(report["not_measured"][0]["why"], why);
}

fn a_read_only_place_is_an_error_with_a_hint(place: &Place) {
    let rig = Rig::builder().size(64 << 20).up().unwrap();
    let before = names(rig.path());
    rig.remount("ro").unwrap();
    let ended = finish(&mut doctor(place, rig.path(), &[]));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    let path = rig.path().display();
    let wanted = format!(
        "synconce: cannot measure in {path}: the file system is read-only\n\
         synconce: hint: synconce doctor DIRECTORY, with a directory that can be written\n"
    );
    assert_eq!((&ended.stdout[..], &ended.stderr), ("", &wanted));
    assert_eq!(names(rig.path()), before);
}
