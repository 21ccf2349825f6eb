//! `gate steady`: the tests that do not pass each time.

use crate::programs::{self, Scope};
use crate::report::Report;
use crate::{checks, pool, tests};
use clap::value_parser;
use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::time::Instant;

/// How the tests are repeated.
#[derive(Debug, clap::Args)]
pub(crate) struct SteadyArguments {
    /// Run the tests N times
    #[arg(value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
    /// Run them beside processor load, syncs of all disks and writes of another process
    #[arg(long)]
    load: bool,
    /// Run only the tests whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
}

/// What a test did that did not pass each time.
#[derive(Default)]
struct Unsteady {
    failures: u32,
    first: String,
}

/// Runs the tests; returns whether each passed each time.
pub(crate) fn run(arguments: &SteadyArguments) -> bool {
    let began = Instant::now();
    let mut report = Report::default();
    let (programs, failure) = programs::build();
    report.outcome("build", failure);
    let mut tests = tests::list(&programs, Scope::All, &mut report);
    let only = &arguments.only;
    tests.retain(|test| only.is_empty() || only.iter().any(|text| test.id().contains(text)));
    if tests.is_empty() {
        report.failed("tests", format!("no name of a test contains one of {only:?}"));
    }
    let _load = arguments.load.then(Load::start);
    let mark = checks::new_mark();
    let mut found: BTreeMap<String, Unsteady> = BTreeMap::new();
    for round in 1..=arguments.rounds {
        eprintln!("== round {round} of {}", arguments.rounds);
        for (test, result) in tests.iter().zip(pool::run(&tests, tests::workers(), &mark)) {
            let Some(said) = result.failure else { continue };
            let unsteady = found.entry(test.id()).or_default();
            unsteady.failures += 1;
            if unsteady.first.is_empty() {
                unsteady.first = said;
            }
        }
    }
    (found.len()..tests.len()).for_each(|_| report.passed());
    for (name, Unsteady { failures, first }) in found {
        report.failed(&format!("{failures} of {}: {name}", arguments.rounds), first);
    }
    report.print(began.elapsed())
}

/// Load beside the tests, until it is dropped.
struct Load(Child);

impl Load {
    /// Starts two busy processes, one that calls sync(2) all the time, and one that writes.
    fn start() -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "stress-ng", "--quiet", "--cpu", "2", "--io", "1"]);
        command.args(["--hdd", "1", "--hdd-bytes", "64m", "--temp-path", "/var/tmp"]);
        Self(command.spawn().expect("stress-ng is installed by scripts/steady"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // stress-ng ends its own processes at SIGTERM.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}
