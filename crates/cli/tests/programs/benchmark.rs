//! `synconce bench db` with the real engines, on a rig that counts flushes.

use crate::bbolt;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::harness::{Need, Place, binary, eventually, limit};
use synconce_testkit::process::{self, Group};
use synconce_testkit::{patiently, rig::Rig};

pub const NEEDS: [Need; 6] = [
    bbolt::NEEDS[0],
    bbolt::NEEDS[1],
    Need::Program("cc", "gcc libc6-dev"),
    Need::File("/usr/include/sqlite3.h", "libsqlite3-dev"),
    Need::File("/usr/include/lmdb.h", "liblmdb-dev"),
    Need::Program("etcd", "etcd-server"),
];

/// Transactions of each sample.
const TRANSACTIONS: u64 = 100;

/// More flushes than a commit and the start and stop of a hold make, with those that other
/// processes cause.
const FEW: u64 = 60;

/// The limit of a test in which programs are compiled and all variants run twice.
const LONG: Duration = Duration::from_secs(300);

fn rig(place: &Place) -> Rig {
    let point = place.path("rig");
    std::fs::create_dir(&point).unwrap();
    Rig::builder().size(2 << 30).record(false).at(point).up().unwrap()
}

fn bench(place: &Place, rig: &Rig, options: &[&str]) -> Command {
    let mut command = place.synconce(&["bench", "db", "--rounds", "1"]);
    // Shared with the other tests of Go programs.
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/go-cache");
    command.env("GOCACHE", cache).arg("--dir").arg(rig.path()).args(options);
    command
}

fn assert_clean(place: &Place, rig: &Rig) {
    let left = std::fs::read_dir(rig.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name != "lost+found").collect::<Vec<_>>(), [""; 0]);
    let runs = place.bare(&[binary(), "status"]);
    assert_eq!(runs.status.code(), Some(0), "{runs:?}");
    let holds = place.bare(&[binary(), "hold", "status", "--json"]);
    assert_eq!(holds.stdout.trim(), "[]", "{holds:?}");
}

fn names(list: &Value, name: impl Fn(&Value) -> &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|one| name(one).as_str().unwrap().to_owned()).collect()
}

/// Returns the flushes of each variant, after a check of what was left out.
fn flushes(report: &Value) -> BTreeMap<String, u64> {
    let left_out = &report["left_out"];
    for name in names(left_out, |one| &one["variant"]) {
        // Debian 12's etcd has no option to leave out syncs.
        assert_eq!(name, "etcd/no-sync", "{left_out}");
    }
    let results = report["results"].as_array().unwrap().iter();
    let count = |result: &Value| {
        let name = result["variant"]["name"].as_str().unwrap().to_owned();
        (name, result["samples"][0]["flushes"].as_u64().unwrap())
    };
    results.map(count).collect()
}

/// Takes long: each database puts by each way to leave out its syncs, and the Go programs are
/// built.
pub fn all_engines_put_and_those_that_are_held_hardly_flush(place: &Place) {
    let rig = rig(place);
    let transactions = TRANSACTIONS.to_string();
    let mut command = bench(place, &rig, &["--json", "--transactions", &transactions]);
    let finished = process::run(&mut command, patiently(LONG)).unwrap();
    assert!(finished.status.success(), "{finished:?}");
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    let flushes = flushes(&report);
    for engine in ["bolt", "sqlite", "lmdb", "etcd"] {
        let plain = flushes[&format!("{engine}/plain")];
        assert!(plain >= TRANSACTIONS, "{engine}: {flushes:?}");
        for way in ["no-sync", "hold", "supervised", "rule", "sealed"] {
            let name = format!("{engine}/{way}");
            // A program that opens its file with O_DSYNC flushes by each write. Only a
            // supervisor can change that.
            let is_o_dsync = engine == "lmdb" && (way == "hold" || way == "sealed");
            if let Some(count) = flushes.get(&name).filter(|_| !is_o_dsync) {
                assert!(*count < FEW, "{name}: {flushes:?}");
            }
        }
    }
    let findings = names(&report["findings"], |one| &one["summary"]).join("\n");
    assert!(findings.contains("bolt/no-sync: NoSync=true NoGrowSync=true"), "{findings}");
    assert!(findings.contains("speed of bolt"), "{findings}");
    assert_clean(place, &rig);
    rig.down().unwrap();
}

pub fn an_interrupted_benchmark_leaves_no_hold(place: &Place) {
    let rig = rig(place);
    let endless = ["--variants", "bolt/hold", "--transactions", "1000000000"];
    let bench = Group::spawn(&mut bench(place, &rig, &endless)).unwrap();
    let base = rig.path().join("synconce-bench/base/base");
    eventually("the database is written", || {
        std::fs::metadata(&base).is_ok_and(|file| file.len() > 1 << 20)
    });
    bench.signal(Signal::INT).unwrap();
    let ended = bench.wait(limit()).unwrap();
    assert!(ended.is_some_and(|status| !status.success()), "{ended:?}");
    assert_clean(place, &rig);
    rig.down().unwrap();
}
