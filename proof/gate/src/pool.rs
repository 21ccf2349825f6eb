//! Runs tests beside each other, each in a process of its own.

use crate::checks::MARK;
use crate::programs::Test;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use synconce_testkit::harness::{DEFERRED, MAY_DEFER};
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Finished};

/// Longer than the limits of all tests (see `testkit::isolation`).
const LIMIT: Duration = Duration::from_secs(900);

/// The result of a test.
#[derive(Clone, Debug)]
pub(crate) struct TestResult {
    /// What a failed test printed.
    pub failure: Option<String>,
    pub elapsed: Duration,
    /// Time on the processors, of the test's processes.
    pub processor: Duration,
}

/// Runs `tests`, `workers` at a time, and then, one after another, those that have to run alone.
/// Returns their results in the same order.
pub(crate) fn run(tests: &[Test<'_>], workers: usize, mark: &str) -> Vec<TestResult> {
    let next = AtomicUsize::new(0);
    let (results, deferred) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let add = |index: usize, result: TestResult| {
        print(&tests[index], &result);
        results.lock().expect("no test panics here").push((index, result));
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, SeqCst);
                    let Some(test) = tests.get(index) else { return };
                    match run_beside(test, mark) {
                        Some(result) => add(index, result),
                        None => deferred.lock().expect("no test panics here").push(index),
                    }
                }
            });
        }
    });
    for index in deferred.into_inner().expect("no test panics here") {
        add(index, run_one(&tests[index], mark));
    }
    let mut results = results.into_inner().expect("no test panics here");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs `test` beside others; returns nothing if it has to run alone.
fn run_beside(test: &Test<'_>, mark: &str) -> Option<TestResult> {
    let began = Instant::now();
    let ended = process::run(command(test, mark).env(MAY_DEFER, "1"), patiently(LIMIT));
    let is_deferred = ended.as_ref().is_ok_and(|ended| ended.status.code() == Some(DEFERRED));
    (!is_deferred).then(|| result(ended, began))
}

/// Runs `test` to its end, beside no other.
pub(crate) fn run_one(test: &Test<'_>, mark: &str) -> TestResult {
    let began = Instant::now();
    result(process::run(&mut command(test, mark), patiently(LIMIT)), began)
}

fn command(test: &Test<'_>, mark: &str) -> Command {
    let mut command = test.program.command();
    command.args(["--exact", &test.name, "--nocapture", "--test-threads=1"]);
    // A trace of the harness hides what the test itself says.
    command.env("RUST_BACKTRACE", "0").env(MARK, mark);
    command
}

fn result(ended: synconce_testkit::Result<Finished>, began: Instant) -> TestResult {
    let processor = ended.as_ref().map_or(Duration::ZERO, |ended| ended.processor);
    let failure = match ended {
        // A program with a harness of its own may run nothing, and succeed.
        Ok(ended) if ended.status.success() && ended.stdout.contains("ok. 1 passed") => None,
        Ok(ended) => Some(format!("{}\n{}{}", ended.status, ended.stderr, ended.stdout)),
        Err(error) => Some(error.to_string()),
    };
    TestResult { failure, elapsed: began.elapsed(), processor }
}

fn print(test: &Test<'_>, result: &TestResult) {
    let word = if result.failure.is_some() { "FAIL" } else { "pass" };
    let [elapsed, processor] = [result.elapsed, result.processor].map(|time| time.as_secs_f64());
    eprintln!("{word} {elapsed:7.2} s {processor:7.2} s  {}", test.id());
}
