//! The last lines of a run: every failure, and the counts.

use crate::checks::{Check, CheckOutcome, Priority};
use std::time::{Duration, Instant};

/// How many tests may fail at first and pass later. With more, the run fails, so that a second
/// look decides nothing.
pub(crate) const UNSTEADY: usize = 5;

/// How many lines of a failure's output are shown.
const LINES: usize = 40;

/// What has passed and failed so far.
#[derive(Default)]
pub(crate) struct Report {
    passed: usize,
    skipped: usize,
    notes: Vec<String>,
    unsteady: Vec<(String, String)>,
    failed: Vec<(String, String)>,
}

impl Report {
    /// Counts a test that passed.
    pub(crate) fn passed(&mut self) {
        self.passed += 1;
    }

    /// Counts tests that cannot run here.
    pub(crate) fn skipped(&mut self, count: usize) {
        self.skipped += count;
    }

    /// Adds the failure `name`, which printed `said`.
    pub(crate) fn failed(&mut self, name: &str, said: String) {
        self.failed.push((name.to_owned(), said));
    }

    /// Adds a test that printed `said` at first and passed at the try `number`.
    pub(crate) fn unsteady(&mut self, name: &str, number: usize, said: String) {
        self.unsteady.push((format!("{name}, passed at try {number}"), said));
    }

    /// Adds the result of a check.
    pub(crate) fn outcome(&mut self, name: &str, failure: Option<String>) {
        match failure {
            None => self.passed(),
            Some(said) => self.failed(name, said),
        }
    }

    /// Adds everything that `other` has.
    pub(crate) fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.skipped += other.skipped;
        self.notes.extend(other.notes);
        self.unsteady.extend(other.unsteady);
        self.failed.extend(other.failed);
    }

    /// Runs `check` and adds its result.
    pub(crate) fn check(&mut self, check: &Check, mark: &str, priority: Priority) {
        eprintln!("== {}", check.name);
        let began = Instant::now();
        match check.run(mark, priority) {
            CheckOutcome::Passed => self.passed(),
            CheckOutcome::Skipped(reason) => {
                self.skipped(1);
                self.notes.push(format!("skipped: {}: {reason}", check.name));
            }
            CheckOutcome::Failed(failures) => {
                failures.into_iter().for_each(|said| self.failed(check.name, said));
            }
        }
        eprintln!("== {}: {:.1} s", check.name, began.elapsed().as_secs_f64());
    }

    /// Prints the failures and the counts; returns whether the run passes.
    pub(crate) fn print(mut self, elapsed: Duration) -> bool {
        if self.unsteady.len() > UNSTEADY {
            let count = self.unsteady.len();
            self.failed("unsteady tests", format!("{count}, of at most {UNSTEADY}"));
        }
        print!("== result after {:.0} s\n{}", elapsed.as_secs_f64(), self.text());
        self.failed.is_empty()
    }

    /// Returns the failures and, as the last line, the counts.
    pub(crate) fn text(&self) -> String {
        let notes = self.notes.iter().map(|note| format!("{note}\n"));
        let named = |word: &'static str, list: &[(String, String)]| -> String {
            list.iter().map(|(name, said)| format!("{word}: {name}\n{}", telling(said))).collect()
        };
        let (passed, failed, skipped) =
            (self.passed + self.unsteady.len(), self.failed.len(), self.skipped);
        notes.collect::<String>()
            + &named("unsteady", &self.unsteady)
            + &named("FAILED", &self.failed)
            + &format!("{passed} passed, {failed} failed, {skipped} skipped\n")
    }
}

/// Returns the first lines of `said`, indented, without those that a test harness adds.
fn telling(said: &str) -> String {
    let is_of_harness = |line: &str| {
        let frame = [
            "running 1 test",
            "SKIPPED: ",
            "failures:",
            "test result:",
            "note: run with `RUST_BACKTRACE",
        ];
        line.trim().is_empty() || frame.iter().any(|start| line.trim().starts_with(start))
    };
    let lines = said.lines().filter(|line| !is_of_harness(line)).take(LINES);
    lines.map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_name_each_failure_with_its_first_lines_and_then_the_counts() {
        let mut report = Report::default();
        report.passed();
        report.skipped(2);
        report.failed("lints", (1..=99).map(|line| format!("line {line}\n")).collect());
        report.failed(
            "trees copy::a",
            "running 1 test\nSKIPPED: b: a need\n\nthread 'a' panicked\n".to_owned(),
        );
        report.unsteady("trees copy::b", 2, "once".to_owned());
        let text = report.text();
        assert!(text.starts_with("unsteady: trees copy::b, passed at try 2\n    once\n"), "{text}");
        assert!(text.contains("FAILED: lints\n    line 1\n"), "{text}");
        assert!(text.contains("    line 40\n") && !text.contains("line 41"), "{text}");
        let last =
            "FAILED: trees copy::a\n    thread 'a' panicked\n2 passed, 2 failed, 2 skipped\n";
        assert!(text.ends_with(last), "{text}");
        assert!(!report.print(Duration::ZERO));
    }

    #[test]
    fn five_unsteady_tests_pass_and_six_fail_the_run() {
        for (count, passes) in [(0, true), (UNSTEADY, true), (UNSTEADY + 1, false)] {
            let mut report = Report::default();
            (0..count).for_each(|_| report.unsteady("a test", 3, String::new()));
            assert_eq!(report.print(Duration::ZERO), passes, "{count}");
        }
    }
}
