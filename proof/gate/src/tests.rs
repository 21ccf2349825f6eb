//! The tests of a run, and a second look at those that fail.

use crate::pool::{self, TestResult};
use crate::programs::{Scope, Test, TestProgram};
use crate::report::{Report, UNSTEADY};
use std::collections::BTreeMap;
use std::time::Duration;

/// A test that waits for a disk or a process leaves the processor to others.
const WORKERS_PER_CORE: usize = 3;

/// How often a failed test is run in all.
const TRIES: usize = 3;

/// How many of the slowest tests are listed.
const SLOWEST: usize = 30;

/// Returns how many tests run beside each other.
pub(crate) fn workers() -> usize {
    WORKERS_PER_CORE * std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs the tests of `programs`.
pub(crate) fn run(programs: &[TestProgram], scope: Scope, mark: &str, report: &mut Report) {
    eprintln!("== tests");
    let tests = list(programs, scope, report);
    let results = pool::run(&tests, workers(), mark);
    print_slowest(&tests, &results);
    let failed = results.iter().filter(|result| result.failure.is_some()).count();
    for (test, result) in tests.iter().zip(results) {
        match result.failure {
            None => report.passed(),
            Some(said) if failed > UNSTEADY => report.failed(&test.id(), said),
            Some(said) => look_again(test, said, mark, report),
        }
    }
}

/// Returns the tests of `programs` in `scope`.
pub(crate) fn list<'a>(
    programs: &'a [TestProgram],
    scope: Scope,
    report: &mut Report,
) -> Vec<Test<'a>> {
    let mut tests = Vec::new();
    for program in programs.iter().filter(|program| scope == Scope::All || program.is_quick()) {
        match program.tests() {
            // The unit tests of a crate may be none.
            Ok((names, skipped)) if names.len() + skipped.len() == 0 && !program.is_unit => {
                report.failed(&program.name, "the test program lists no test".to_owned());
            }
            Ok((names, skipped)) => {
                tests.extend(names.into_iter().map(|name| Test { program, name }));
                report.skipped(skipped.len());
            }
            Err(said) => report.failed(&program.name, said),
        }
    }
    tests.retain(|test| scope == Scope::All || !test.needs_root());
    if tests.is_empty() {
        report.failed("tests", "there is no test".to_owned());
    }
    interleaved(tests)
}

/// Returns `tests` in the order of their start: the longest first, unit tests last. The tests of a
/// program are spread over the others, because neighbours in a program often wait for the same
/// locks.
fn interleaved(tests: Vec<Test<'_>>) -> Vec<Test<'_>> {
    let mut counts: BTreeMap<&TestProgram, (usize, usize)> = BTreeMap::new();
    for test in &tests {
        counts.entry(test.program).or_default().0 += 1;
    }
    let mut placed: Vec<_> = tests
        .into_iter()
        .map(|test| {
            let (count, before) = counts.get_mut(test.program).expect("it was counted");
            *before += 1;
            let spread = *before * 1_000_000 / *count;
            let place = match test.place_among_longest() {
                Some(place) => (0, place),
                None => (1 + usize::from(test.program.is_unit), spread),
            };
            (place, test)
        })
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, test)| test).collect()
}

/// Runs the failed `test` again, alone.
fn look_again(test: &Test<'_>, said: String, mark: &str, report: &mut Report) {
    for number in 2..=TRIES {
        eprintln!("== try {number} of {}", test.id());
        if pool::run_one(test, mark).failure.is_none() {
            return report.unsteady(&test.id(), number, said);
        }
    }
    report.failed(&test.id(), said);
}

/// Prints the tests that took the most processor time, which other tests do not change; each
/// with its whole time.
fn print_slowest(tests: &[Test<'_>], results: &[TestResult]) {
    let mut slowest: Vec<_> = tests.iter().zip(results).collect();
    slowest.sort_by_key(|(_, result)| std::cmp::Reverse(result.processor));
    let sum = |time: fn(&TestResult) -> Duration| {
        results.iter().map(time).sum::<Duration>().as_secs_f64()
    };
    let (elapsed, processor) = (sum(|result| result.elapsed), sum(|result| result.processor));
    let count = tests.len();
    eprintln!(
        "== {count} tests, {elapsed:.0} s one after another, {processor:.0} s of processor time; \
         of the slowest both:"
    );
    for (test, result) in slowest.into_iter().take(SLOWEST) {
        let [elapsed, processor] =
            [result.elapsed, result.processor].map(|time| time.as_secs_f64());
        eprintln!("{elapsed:7.2} s {processor:7.2} s  {}", test.id());
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    /// A test program: `steady` passes, `broken` fails, `third` passes at the third time.
    const PROGRAM: &str = r#"#!/bin/sh
case "$*" in
*--ignored*) echo 'absent: test' ;;
--list*) printf '%s: test\n' steady broken third absent ;;
*)
    echo "$2" >>ran
    case $2 in
    broken) echo 'it is broken'; exit 101 ;;
    third) [ "$(grep -c third ran)" -ge 3 ] || { echo 'not yet'; exit 101; } ;;
    esac
    echo 'test result: ok. 1 passed; 0 failed'
    ;;
esac
"#;

    fn program(directory: &Path) -> TestProgram {
        let path = directory.join("program");
        fs::write(&path, PROGRAM).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        TestProgram::new("made", path, directory.to_owned())
    }

    #[test]
    fn a_failed_test_is_run_again_after_all_others_and_three_times_at_most() {
        let directory = tempfile::tempdir().unwrap();
        let programs = [program(directory.path())];
        let mut report = Report::default();
        run(&programs, Scope::All, "0.0", &mut report);
        let ran = fs::read_to_string(directory.path().join("ran")).unwrap();
        let mut ran: Vec<_> = ran.lines().collect();
        ran[..3].sort_unstable();
        assert_eq!(ran, ["broken", "steady", "third", "broken", "broken", "third", "third"]);
        let text = report.text();
        assert!(text.starts_with("unsteady: made third, passed at try 3\n"), "{text}");
        let last = "FAILED: made broken\n    exit status: 101\n    it is broken\n2 passed, 1 failed, 1 skipped\n";
        assert!(text.ends_with(last), "{text}");
    }
}
