//! `synconce bench build` with a real dockerd, on a rig that counts flushes.

use crate::engines::report;
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::harness::Need;
use synconce_testkit::harness::{Place, eventually, kill, limit, trial, without_foreign_syncs};
use synconce_testkit::process::{self, Group};
use synconce_testkit::{patiently, rig::Rig};

const NEEDS: [Need; 4] = [
    Need::Program("dockerd", "docker.io"),
    Need::File("/usr/bin/docker", "docker.io"),
    Need::Program("mmdebstrap", "mmdebstrap"),
    Need::Program("mkfs.ext4", "e2fsprogs"),
];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(every_way_builds_and_those_that_hold_hardly_flush, &NEEDS),
        trial(a_chown_flushes_for_no_file_and_a_hold_of_databases_leaves_hardly_any_flush, &NEEDS),
        // 80 s of processor time; the same copies in a chown are counted above.
        trial(an_upgrade_flushes_for_no_file_on_a_volatile_root, &NEEDS).with_ignored_flag(true),
        trial(an_interrupted_benchmark_leaves_no_daemon_and_no_image, &NEEDS),
        trial(a_killed_benchmark_ends_its_daemon_and_another_benchmark_works, &NEEDS),
    ]
}

/// 1,800 small files, each of which dpkg syncs by default.
const PACKAGE: &str = "manpages-dev";

/// No build has more flushes if its syncs and BuildKit's databases are held. docs/benchmarks.md
/// has 38.
const HARDLY_ANY: u64 = 60;

/// The limit of a test in which a base is made and eight images are built.
const LONG: Duration = Duration::from_secs(300);

/// Returns a rig without delays, for counting. It is not below /run, which the benchmark
/// covers.
fn rig(place: &Place) -> Rig {
    let point = place.path("rig");
    std::fs::create_dir_all(&point).unwrap();
    Rig::builder().size(6 << 30).record(false).at(point).up().unwrap()
}

fn bench(place: &Place, rig: &Rig, options: &[&str]) -> Command {
    let mut command = place.synconce(&["bench", "build", "--rounds", "1", "--packages", PACKAGE]);
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-base");
    command.arg("--cache").arg(cache).arg("--dir").arg(rig.path()).args(options);
    command
}

/// Returns the executables of all processes.
fn daemons(place: &Place) -> String {
    place.sh("for exe in /proc/[0-9]*/exe; do readlink $exe; done").stdout
}

fn assert_clean(place: &Place, rig: &Rig) {
    let left = std::fs::read_dir(rig.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name != "lost+found").collect::<Vec<_>>(), [""; 0]);
    let daemons = daemons(place);
    assert!(!daemons.contains("dockerd") && !daemons.contains("containerd"), "{daemons}");
    let disk = std::fs::metadata(rig.path()).unwrap().dev();
    let cgroups = place.sh(&format!("find /sys/fs/cgroup -name 'synconce-bench-{disk:x}-*'"));
    assert_eq!(cgroups.stdout, "", "{cgroups:?}");
}

/// Runs a benchmark on a disk of its own, and returns the flushes of each variant.
fn flushes(place: &Place, options: &[&str]) -> BTreeMap<String, u64> {
    let rig = rig(place);
    let mut command = bench(place, &rig, &[&["--json"], options].concat());
    // The root in which packages are installed has no such directory.
    let logs = place.path("logs");
    std::fs::create_dir_all(&logs).unwrap();
    command.env("TMPDIR", logs);
    let finished = process::run(&mut command, patiently(LONG)).unwrap();
    assert!(finished.status.success(), "{finished:?}");
    let results: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(results["left_out"], Value::Array(Vec::new()), "{}", finished.stdout);
    let mut flushes = BTreeMap::new();
    for result in results["results"].as_array().unwrap() {
        let name = result["variant"]["name"].as_str().unwrap();
        let sample = &result["samples"][0];
        let parts = sample["parts"].as_array().unwrap().iter();
        let parts: Vec<_> = parts.map(|part| part["name"].as_str().unwrap()).collect();
        assert_eq!(parts, ["load", "copy", "run", "export"], "{name}: {}", finished.stdout);
        flushes.insert(name.to_owned(), sample["flushes"].as_u64().unwrap());
    }
    report(&format!("bench build {options:?}: flushes {flushes:?}"));
    assert_clean(place, &rig);
    rig.down().unwrap();
    flushes
}

fn every_way_builds_and_those_that_hold_hardly_flush(place: &Place) {
    let ways = "full-fsync,image-default,wrapper,volatile,volatile-unheld,shell,eatmydata";
    let all = flushes(place, &["--variants", ways]);
    // The remaining flushes come mostly from the daemon's own databases.
    for held in ["wrapper", "shell", "eatmydata"] {
        assert!(all[held] * 3 < all["full-fsync"], "{held}: {all:?}");
    }
    assert!(all["image-default"] < all["full-fsync"], "{all:?}");
    // Their databases included, hardly any flush is left: a sync of another test would add as many.
    let _barrier = without_foreign_syncs();
    let held = flushes(place, &["--variants", "wrapper-hold,volatile-hold"]);
    assert!(held["wrapper-hold"] * 2 < all["wrapper"], "{held:?}, {all:?}");
    assert!(held["wrapper-hold"] <= HARDLY_ANY, "{held:?}");
    // The overlay of a root that is no volatile one flushes for each file that it copies up: ten
    // here.
    assert!(held["volatile-hold"] < held["wrapper-hold"], "{held:?}");
}

/// An overlay flushes for each file whose metadata it copies up, unless it is volatile.
fn a_chown_flushes_for_no_file_and_a_hold_of_databases_leaves_hardly_any_flush(place: &Place) {
    // Another program may sync all disks while it makes the base for the cache.
    flushes(place, &["--copy-up", "3", "--variants", "volatile"]);
    let _barrier = without_foreign_syncs();
    let options = ["--chown", "50", "--variants", "wrapper,volatile,volatile-hold"];
    let chown = flushes(place, &options);
    assert!(chown["volatile"] + 50 < chown["wrapper"], "{chown:?}");
    assert!(chown["volatile-hold"] <= HARDLY_ANY, "{chown:?}");
}

/// dpkg links each file that it replaces to another name, so the overlay copies the file up.
fn an_upgrade_flushes_for_no_file_on_a_volatile_root(place: &Place) {
    // Its script makes a temporary file.
    let more = ["--packages", "ca-certificates"];
    let options = ["--upgrade", "--variants", "wrapper,volatile"];
    let upgrade = flushes(place, &[&more[..], &options].concat());
    // The files of the package alone: two flushes for each copy.
    assert!(upgrade["volatile"] + 2 * 1_800 < upgrade["wrapper"], "{upgrade:?}");
}

/// Starts a benchmark with its logs in `logs`; returns when its first step has begun.
fn amid_a_step(place: &Place, rig: &Rig, logs: &Path) -> Group {
    std::fs::create_dir(logs).unwrap();
    let mut command = bench(place, rig, &["--variants", "wrapper"]);
    let bench = Group::spawn(command.env("TMPDIR", logs)).unwrap();
    let log = || {
        let dirs = std::fs::read_dir(logs).unwrap().flatten().map(|entry| entry.path());
        let name = "round-1-wrapper.log";
        dirs.filter_map(|dir| std::fs::read_to_string(dir.join(name)).ok()).collect::<String>()
    };
    let start = Instant::now();
    while !log().contains("] RUN ") {
        let ended = bench.wait(Duration::ZERO).unwrap().is_some();
        let over = ended || start.elapsed() > patiently(LONG);
        assert!(!over, "no step begins: {}", bench.stderr().unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    bench
}

fn an_interrupted_benchmark_leaves_no_daemon_and_no_image(place: &Place) {
    let rig = rig(place);
    let logs = place.path("logs");
    let bench = amid_a_step(place, &rig, &logs);
    bench.signal(Signal::INT).unwrap();
    let ended = bench.wait(limit()).unwrap();
    assert!(ended.is_some_and(|status| !status.success()), "{ended:?}");
    eventually("its log directory is removed", || {
        std::fs::read_dir(&logs).unwrap().next().is_none()
    });
    assert_clean(place, &rig);
    rig.down().unwrap();
}

fn a_killed_benchmark_ends_its_daemon_and_another_benchmark_works(place: &Place) {
    let rig = rig(place);
    let killed = amid_a_step(place, &rig, &place.path("logs"));
    kill(killed.pid(), Signal::KILL);
    eventually("its daemon is gone", || !daemons(place).contains("dockerd"));
    eventually("containerd is gone", || !daemons(place).contains("containerd"));
    let next = amid_a_step(place, &rig, &place.path("next"));
    next.signal(Signal::INT).unwrap();
    assert!(next.wait(limit()).unwrap().is_some());
    assert_clean(place, &rig);
    rig.down().unwrap();
}
