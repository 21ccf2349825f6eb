//! Reports, and places on rigs.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::harness::{Place, finish};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{FsKind, Latency, Rig};

/// Returns a disk whose flush takes at least `milliseconds`.
pub fn rig(fs: FsKind, milliseconds: u64) -> Rig {
    let latency = Latency::of_flush(Duration::from_millis(milliseconds));
    Rig::builder().fs(fs).latency(latency).up().unwrap()
}

/// Returns the command `synconce doctor PATH OPTIONS`, which breaks no line.
pub fn doctor(place: &Place, path: &Path, options: &[&str]) -> Command {
    let mut command = place.synconce(&["doctor", path.to_str().unwrap()]);
    command.args(options).env("COLUMNS", WIDE);
    command
}

/// A width that no line has.
pub const WIDE: &str = "10000";

/// Runs `command` with `--json`; returns the report, and asserts that nothing is left in `path`.
pub fn report(path: &Path, command: &mut Command) -> (Value, Finished) {
    let before = names(path);
    let ended = finish(command.arg("--json"));
    let report = serde_json::from_str(&ended.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert_eq!(names(path), before, "temporary files are left");
    (report, ended)
}

/// Returns the report about `path`, after a success.
pub fn healthy(place: &Place, path: &Path) -> Value {
    let (report, ended) = report(path, &mut doctor(place, path, &[]));
    assert!(ended.status.success(), "{ended:?}");
    report
}

/// Returns the names of the findings.
pub fn findings(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("findings");
    findings.iter().map(|finding| finding["name"].as_str().expect("a name")).collect()
}

/// Returns the names in the directory `path`.
pub fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
