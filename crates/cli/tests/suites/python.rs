//! CPython's own tests of the modules that call the kernel for files, maps and signals.

use crate::case::Case;
use crate::results::Results;
use std::fs;
use std::path::Path;
use std::time::Duration;
use synconce_testkit::process::Finished;

const MODULES: [&str; 6] =
    ["test_os", "test_mmap", "test_posix", "test_io", "test_signal", "test_asyncio"];

/// The file with the results, in the directory of a run.
const RESULTS: &str = "results.xml";

pub fn cases() -> Vec<Case> {
    let case = |module: &&str| {
        let words = ["/usr/bin/python3", "-m", "test", "--junit-xml", RESULTS, module];
        Case {
            suite: "cpython",
            name: (*module).to_owned(),
            words: words.map(str::to_owned).to_vec(),
            environment: Vec::new(),
            device: false,
            limit: Duration::from_secs(600),
            results,
        }
    };
    MODULES.iter().map(case).collect()
}

fn results(directory: &Path, finished: &Finished) -> Results {
    let mut results = Results::ending(finished.status);
    let xml = fs::read_to_string(directory.join(RESULTS)).unwrap_or_default();
    for test in xml.split("<testcase ").skip(1) {
        let name = test.split("name=\"").nth(1).and_then(|rest| rest.split('"').next());
        let kinds = ["failure", "error", "skipped"];
        let kind = kinds.iter().find(|kind| test.contains(&format!("<{kind}")));
        results.add(name.unwrap_or_default(), *kind.unwrap_or(&"ok"));
    }
    results
}
