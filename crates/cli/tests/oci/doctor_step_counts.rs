//! `synconce doctor -- docker build`: the syncs of each step are those that strace counts.

use crate::bundles::compiled;
use crate::doctor_steps::{build, watched};
use crate::engines::docker::{self, Docker};
use crate::engines::{Given, Site, prepare};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use synconce_testkit::harness::{Need, Place, Trace, debian, finish, trial};
use synconce_testkit::rig::{Latency, Rig};

pub fn trials() -> Vec<Trial> {
    let [dockerd, client, cc] = docker::NEEDS;
    let strace = Need::Program("strace", "strace");
    let busybox = Need::File("/bin/busybox", "busybox-static");
    let mmdebstrap = Need::Program("mmdebstrap", "mmdebstrap");
    vec![
        trial(the_syncs_of_each_step_are_those_of_strace, &[dockerd, client, cc, strace, busybox]),
        trial(
            the_syncs_of_an_install_in_a_step_are_those_of_strace,
            &[dockerd, client, cc, strace, mmdebstrap],
        ),
    ]
}

/// The commands of the steps.
const STEPS: [&[&str]; 8] = [
    &["/calls", "/file", "fsync", "7"],
    &["/calls", "/file", "fdatasync", "5", "sync_file_range", "3", "syncfs", "2"],
    &["/calls", "/file", "processes", "4", "fsync", "6"],
    &["/calls", "/file", "threads", "5", "fdatasync", "4"],
    // A sync takes longer than the time between two signals.
    &["/calls", "/file", "interrupted", "5", "fsync", "10"],
    &["/busybox", "true"],
    &["/calls", "/file", "dsync", "9"],
    &[
        "/busybox",
        "sh",
        "-ec",
        "/busybox sync; /busybox sync -d /file; /busybox dd if=/calls of=/copy conv=fsync",
    ],
];
const CALLS: [&str; 5] = ["fdatasync", "fsync", "sync", "sync_file_range", "syncfs"];

/// How often each call was made.
type Counts = BTreeMap<String, u64>;

fn the_syncs_of_each_step_are_those_of_strace(place: &Place) {
    prepare(place);
    let rig = Rig::builder().size(1 << 30).latency(Latency::of_flush(Duration::from_millis(4)));
    let rig = rig.up().unwrap();
    let root = rig.path().join("root");
    let calls = compiled(place, "calls", include_str!("calls.c"));
    for directory in [&root, &place.path("context")] {
        fs::create_dir_all(directory).unwrap();
        fs::copy(&calls, directory.join("calls")).unwrap();
        fs::copy("/bin/busybox", directory.join("busybox")).unwrap();
    }
    let wanted = STEPS.map(|words| traced(place, &root, words));
    assert_eq!(wanted[0], Counts::from([("fsync".to_owned(), 7)]));
    assert_eq!(wanted[5], Counts::new());
    let runs: Vec<_> = STEPS.iter().map(|words| format!("RUN {}\n", json!(words))).collect();
    let text = format!("FROM scratch\nCOPY calls busybox /\n{}", runs.concat());
    place.write("context/Dockerfile", &text);
    let site = Site::with(place, Given::Us, &rig.path().join("ours")).with_short_run_files();
    let docker = Docker::with_storage(&site, "overlay2");
    for buildkit in ["1", "0"] {
        let (built, report) = watched(place, &["-o", "record"], &build(&docker, buildkit));
        assert!(built.status.success(), "{built:?}");
        assert_eq!(recorded(&place.read("record")), wanted, "DOCKER_BUILDKIT={buildkit}");
        assert_reported(&report, &wanted);
    }
    docker.stop();
    drop(site);
    rig.down().unwrap();
}

/// The commands of the steps of an image of Debian.
const INSTALL: [&[&str]; 2] = [
    &["sh", "-ec", "dpkg --install /var/cache/apt/archives/*.deb"],
    &["dpkg", "--purge", "manpages-dev"],
];

fn the_syncs_of_an_install_in_a_step_are_those_of_strace(place: &Place) {
    prepare(place);
    let rig = Rig::builder().size(3 << 30).latency(Latency::of_flush(Duration::from_millis(1)));
    let rig = rig.up().unwrap();
    let root = rig.path().join("root");
    fs::create_dir(&root).unwrap();
    let base = debian::base();
    let unpacked = finish(place.command("tar").arg("-xf").arg(&base).arg("-C").arg(&root));
    assert!(unpacked.status.success(), "{unpacked:?}");
    let wanted = INSTALL.map(|words| traced(place, &root, words));
    assert!(wanted[0]["fsync"] > 100 && wanted[1]["fsync"] > 5, "{wanted:?}");
    fs::copy(base, place.path("context/debian.tar")).unwrap();
    let runs: Vec<_> = INSTALL.iter().map(|words| format!("RUN {}\n", json!(words))).collect();
    place
        .write("context/Dockerfile", &format!("FROM scratch\nADD debian.tar /\n{}", runs.concat()));
    let site = Site::with(place, Given::Us, &rig.path().join("ours")).with_short_run_files();
    let docker = Docker::with_storage(&site, "overlay2");
    let (built, _) = watched(place, &["-o", "record"], &build(&docker, "1"));
    assert!(built.status.success(), "{built:?}");
    assert_eq!(recorded(&place.read("record")), wanted);
    docker.stop();
    drop(site);
    rig.down().unwrap();
}

/// Returns the syncs of `words` in the root `root`, counted by strace.
fn traced(place: &Place, root: &Path, words: &[&str]) -> Counts {
    let mut strace = place.command("strace");
    strace.args(["-f", "-o", "trace", "-e", &format!("trace={}", CALLS.join(","))]);
    let ended = finish(strace.arg("chroot").arg(root).args(words));
    assert!(ended.status.success(), "{ended:?}");
    let trace = Trace::parse(&place.read("trace"));
    let counts = CALLS.map(|call| (call.to_owned(), trace.count(&[&format!(" {call}(")]) as u64));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Returns the timed calls of each step in the text of a record.
fn recorded<const STEPS: usize>(record: &str) -> [Counts; STEPS] {
    let mut counts = [const { Counts::new() }; STEPS];
    let lines = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    for line in lines.filter(|line| line["wait"].is_u64()) {
        let step = line["step"].as_u64().unwrap_or_else(|| panic!("{line} is of no step"));
        let call = line["call"].as_str().unwrap().to_owned();
        *counts[step as usize - 1].entry(call).or_default() += 1;
    }
    counts
}

/// Asserts that `report` has the sums of `wanted`, and no more waits than a step had time for.
fn assert_reported(report: &Value, wanted: &[Counts]) {
    let steps = report["build"]["steps"].as_array().unwrap();
    let sums: Vec<u64> = wanted.iter().map(|counts| counts.values().sum()).collect();
    let calls: Vec<_> = steps.iter().map(|step| step["calls"].as_u64().unwrap()).collect();
    assert_eq!(calls, sums, "{report:#}");
    let by_call = report["build"]["waits"]["by_call"].as_array().unwrap();
    let all = by_call.iter().map(|group| group["calls"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(all, sums.iter().sum::<u64>(), "{report:#}");
    // What makes writes sync has no time.
    let untimed: Vec<_> = steps.iter().map(|step| step["untimed"].as_u64().unwrap()).collect();
    assert_eq!(untimed, [0, 0, 0, 0, 0, 0, 1, 0], "{report:#}");
    let not_timed = &report["build"]["not_covered"][0];
    let known =
        [&not_timed["call"], &not_timed["program"], &not_timed["file"], &not_timed["is_held"]];
    assert_eq!(
        known,
        [&json!("openat"), &json!("calls"), &json!("/file"), &json!(false)],
        "{report:#}"
    );
    // One process, which waits for one sync at a time.
    for at in [0, 1, 4, 7] {
        let of = |key: &str| steps[at][key].as_f64().unwrap();
        assert!(of("waits") <= of("seconds") && of("waits") > 0.0, "step {}: {report:#}", at + 1);
    }
}
