//! libeatmydata's own tests, without the library: they test the hold instead.

use crate::case::Case;
use crate::results::Results;
use std::fs;
use std::path::Path;
use std::time::Duration;
use synconce_testkit::process::Finished;

/// Returns the tests in `directory`, which is empty or missing if none were built.
pub fn cases(directory: &Path) -> Vec<Case> {
    let programs = fs::read_dir(directory).into_iter().flatten().flatten();
    let case = |program: fs::DirEntry| Case {
        suite: "libeatmydata",
        name: program.file_name().to_string_lossy().into_owned(),
        words: vec![program.path().display().to_string()],
        environment: Vec::new(),
        device: false,
        limit: Duration::from_secs(120),
        results,
    };
    programs.map(case).collect()
}

fn results(_: &Path, finished: &Finished) -> Results {
    let mut results = Results::ending(finished.status);
    let failed = |line: &str| Some(line.strip_prefix("Test case failed: ")?.to_owned());
    finished.stderr.lines().filter_map(failed).for_each(|test| {
        results.add(test.split(" (").next().unwrap_or_default(), "failed");
    });
    results
}
