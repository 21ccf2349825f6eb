//! `synconce doctor --docker`: the databases of BuildKit in dockerd.

use crate::doctor::{latency, report, rig};
use crate::engines::docker::{self, Docker};
use crate::engines::{Given, Site, prepare};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_testkit::go;
use synconce_testkit::harness::{Need, Place, finish, trial, without_foreign_syncs};
use synconce_testkit::rig::{Limits, Rig};

pub fn trials() -> Vec<Trial> {
    let source = "/usr/share/gocode/src/go.etcd.io/bbolt/db.go";
    let bbolt =
        [Need::Program("go", "golang-go"), Need::File(source, "golang-github-coreos-bbolt-dev")];
    let needs = [&docker::NEEDS[..], &bbolt].concat();
    vec![
        trial(transactions_of_builds_are_counted_and_priced, &docker::NEEDS),
        trial(a_transaction_of_bbolt_has_two_flushes, &bbolt),
        trial(a_large_freelist_is_named_until_the_database_is_compacted, &needs),
    ]
}

/// A Dockerfile of one step.
const STEP: &str = "FROM scratch\nCOPY probe /\nRUN [\"/probe\", \"well\"]\n";

fn build(engine: &Docker<'_>) {
    let words = ["build", "--network", "none", "--no-cache", "--tag", "built", "context"];
    let built = engine.client("1", &words);
    assert!(built.status.success(), "{built:?}");
}

/// Returns the name and the value `of` of each database in `report`.
fn databases<'r>(report: &'r Value, of: &str) -> Vec<(&'r str, &'r Value)> {
    let all = report["engine"]["bolt"].as_array().unwrap().iter();
    let name = |it: &'r Value| it["path"].as_str().unwrap().rsplit('/').next().unwrap();
    all.map(|it| (name(it), &it[of])).collect()
}

fn finding<'r>(report: &'r Value, name: &str) -> Option<&'r Value> {
    report["findings"].as_array().unwrap().iter().find(|it| it["name"] == name)
}

fn transactions_of_builds_are_counted_and_priced(place: &Place) {
    const BUILDS: u64 = 3;
    const FLUSH: u64 = 8;
    prepare(place);
    place.write("context/Dockerfile", STEP);
    let rig = rig();
    let site = Site::with(place, Given::Runc, rig.path());
    let engine = Docker::with_storage(&site, "overlay2");
    let root = rig.path().join("docker");
    let report = || {
        rig.disk().set_latency(latency(FLUSH)).unwrap();
        let report = report(place, "--docker", &root);
        rig.disk().set_latency(latency(0)).unwrap();
        report
    };
    // BuildKit was not used yet.
    let before = report();
    assert_eq!(finding(&before, "slow-transactions"), None, "{before:#}");
    for _ in 0..BUILDS {
        build(&engine);
    }
    let after = report();
    let transactions = |report| databases(report, "transactions");
    let made = transactions(&before).into_iter().zip(transactions(&after));
    let made = made.map(|((name, before), (_, after))| {
        (name, after.as_u64().unwrap() - before.as_u64().unwrap())
    });
    // The prices count as many transactions in a build.
    let made: Vec<_> = made.collect();
    for (wanted, least) in [("metadata_v2.db", 45), ("containerdmeta.db", 12), ("snapshots.db", 9)]
    {
        let found = made.iter().find(|(name, _)| *name == wanted);
        assert!(found.is_some_and(|(_, count)| *count >= BUILDS * least), "{made:?}");
    }
    let unsynced = databases(&after, "is_synced").into_iter().filter(|(_, value)| **value == false);
    assert_eq!(unsynced.map(|(name, _)| name).collect::<Vec<_>>(), ["cache.db"]);
    let priced = finding(&after, "slow-transactions").unwrap();
    assert_eq!(priced["remedy"], "synconce setup docker --hold");
    assert_eq!(priced["undo"], "synconce setup docker --hold --undo");
    // 1,300 flushes.
    assert!(priced["seconds"].as_f64() > Some(9.0), "{priced:#}");
    // Two flushes, in microseconds.
    let wait = &after["measured"]["transaction"]["micros"];
    assert!(wait.as_f64() >= Some((2 * FLUSH * 1_000) as f64), "{after:#}");
    engine.stop();
}

/// Compiles the program of the test, as `bbolt`.
fn bbolt(place: &Place) -> PathBuf {
    fs::create_dir(place.path("go")).unwrap();
    place.write("go/main.go", include_str!("databases.go"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
    succeeds(&mut go::build(&place.path("go"), "bbolt", &cache));
    place.path("go/bbolt")
}

fn succeeds(command: &mut Command) {
    let ended = finish(command);
    assert!(ended.status.success(), "{ended:?}");
}

fn a_transaction_of_bbolt_has_two_flushes(place: &Place) {
    const MORE: u64 = 100;
    let _alone = without_foreign_syncs();
    let program = bbolt(place);
    let rig = Rig::builder().up().unwrap();
    let flushes = |name: &str, count: u64| {
        let before = rig.disk().stats().unwrap().flushes;
        let file = rig.path().join(name);
        succeeds(Command::new(&program).arg("put").arg(file).arg(count.to_string()));
        rig.disk().stats().unwrap().flushes - before
    };
    // The file is made, and grows once.
    let few = flushes("few.db", 10);
    assert_eq!(flushes("many.db", 10 + MORE) - few, 2 * MORE);
}

fn a_large_freelist_is_named_until_the_database_is_compacted(place: &Place) {
    // Its list of free pages has 8 bytes for each page of 4 KiB.
    const FREED: u64 = 128 << 20;
    const LIST: u64 = FREED / 4096 * 8;
    const RATE: u64 = 8_000_000;
    prepare(place);
    place.write("context/Dockerfile", STEP);
    let program = bbolt(place);
    let rig = Rig::builder().size(2 << 30).passthrough(false).up().unwrap();
    let site = Site::with(place, Given::Runc, rig.path());
    let engine = Docker::with_storage(&site, "overlay2");
    build(&engine);
    engine.stop();
    let file = rig.path().join("docker/buildkit/metadata_v2.db");
    succeeds(Command::new(&program).arg("grow").arg(&file).arg(FREED.to_string()));

    let engine = Docker::with_storage(&site, "overlay2");
    let report = || {
        rig.disk().set_limits(Limits { written_bytes: Some(RATE), ..Limits::NONE }).unwrap();
        let report = report(place, "--docker", &rig.path().join("docker"));
        rig.disk().set_limits(Limits::NONE).unwrap();
        report
    };
    let found = report();
    let free = databases(&found, "free_pages");
    let (_, free) = free.iter().find(|(name, _)| *name == "metadata_v2.db").unwrap();
    assert!(free.as_u64() >= Some(FREED / 4096), "{found:#}");
    let list = &found["measured"]["transaction"]["free_list"];
    let least = LIST as f64 / RATE as f64 * 1e6;
    assert!(list["fastest"].as_f64() > Some(0.9 * least), "{list:#}");
    let named = finding(&found, "large-freelist").unwrap();
    assert!(named["seconds"].as_f64() > Some(3.0), "{named:#}");
    let remedy = named["remedy"].as_str().unwrap();
    engine.stop();

    // systemd does not run here.
    place.write("go/systemctl", "#!/bin/sh\necho \"$@\" >>\"${0%/*}/asked\"\n");
    fs::set_permissions(place.path("go/systemctl"), Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", place.text("go"), std::env::var("PATH").unwrap());
    succeeds(place.command("sh").args(["-ec", remedy]).env("PATH", path));
    let asked = fs::read_to_string(place.path("go/asked")).unwrap();
    assert_eq!(asked, "stop docker.socket docker.service\nstart docker.service\n");
    let engine = Docker::with_storage(&site, "overlay2");
    build(&engine);
    let mended = report();
    assert_eq!(finding(&mended, "large-freelist"), None, "{mended:#}");
    assert_eq!(mended["measured"]["transaction"]["free_list"], Value::Null, "{mended:#}");
    engine.stop();
}
