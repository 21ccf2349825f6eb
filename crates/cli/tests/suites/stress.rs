//! stress-ng's stressors of the classes that do I/O, a few seconds of each.

use crate::case::Case;
use crate::results::Results;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::process::Finished;

const CLASSES: [&str; 2] = ["io", "filesystem"];

/// The exit code of stress-ng if a stressor cannot run here.
const NO_RESOURCE: i32 = 3;
const NOT_IMPLEMENTED: i32 = 4;

pub fn cases() -> Vec<Case> {
    let stressors: BTreeSet<_> = CLASSES.iter().flat_map(|class| stressors(class)).collect();
    stressors.into_iter().map(case).collect()
}

/// Returns the stressors of a class, as stress-ng lists them: `class 'io' stressors: aio hdd
/// ...`.
fn stressors(class: &str) -> Vec<String> {
    let listed = Command::new("stress-ng").arg("--class").arg(format!("{class}?")).output();
    let listed = listed.expect("stress-ng; scripts/suites installs it");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names = text.split_once("stressors:").expect("a list of stressors").1;
    names.split_whitespace().map(str::to_owned).collect()
}

fn case(stressor: String) -> Case {
    let option = format!("--{stressor}");
    let words = ["stress-ng", "--verify", "--timeout", "3s", "--hdd-bytes", "64m", &option, "2"];
    Case {
        suite: "stress-ng",
        words: words.map(str::to_owned).to_vec(),
        name: stressor,
        environment: Vec::new(),
        device: false,
        limit: Duration::from_secs(120),
        results,
    }
}

fn results(_: &Path, finished: &Finished) -> Results {
    let mut results = Results::ending(finished.status);
    let lines = finished.stdout.lines().chain(finished.stderr.lines());
    lines.filter(|line| line.contains("fail: ")).for_each(|_| results.count("fails"));
    if matches!(finished.status.code(), Some(NO_RESOURCE | NOT_IMPLEMENTED)) {
        results.add("skipped", "not here");
    }
    results
}
