//! Checks: commands that pass as a whole.

use crate::command;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use synconce_testkit::harness::tail;

/// A command that has to succeed.
pub(crate) struct Check {
    pub name: &'static str,
    words: &'static [&'static str],
    /// Words of a command that fails where the check's program is not installed.
    needs: &'static [&'static str],
    /// Start of the lines of its output that each name a failure.
    failure: Option<&'static str>,
}

/// How the processors are shared with other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    Normal,
    /// Only processors that nothing else wants (SCHED_IDLE of sched(7)).
    Idle,
}

/// The result of a check.
pub(crate) enum CheckOutcome {
    Passed,
    Skipped(String),
    /// Each failure, as lines to print.
    Failed(Vec<String>),
}

const fn check(name: &'static str, words: &'static [&'static str]) -> Check {
    Check { name, words, needs: &["true"], failure: None }
}

/// Checks of the sources.
pub(crate) const BEFORE: &[Check] = &[
    Check {
        needs: &["cargo", "fmt", "--version"],
        ..check("format", &["cargo", "fmt", "--check", "--", "--color", "never"])
    },
    // The licence check works offline and includes dependencies of tests.
    check("dependencies", &["cargo", "fetch", "--locked", "--quiet"]),
];

/// Checks that use what is built.
pub(crate) const AFTER_BUILD: &[Check] = &[
    check("licences", &["xtask", "licences"]),
    check("generated files", &["xtask", "generate", "--check"]),
    check("figures", &["scripts/figures", "--check"]),
    check(
        "documentation tests",
        &["cargo", "test", "--locked", "--quiet", "--workspace", "--doc", "--no-fail-fast"],
    ),
];

/// Checks that compile, and link no program that a test executes. They run beside the
/// tests, on processors that these leave idle.
pub(crate) const BESIDE_TESTS: &[Check] = &[
    Check {
        needs: &["cargo", "clippy", "--version"],
        ..check(
            "lints",
            &[
                "cargo",
                "clippy",
                "--locked",
                "--quiet",
                "--keep-going",
                "--workspace",
                "--all-targets",
                "--",
                "--deny",
                "warnings",
            ],
        )
    },
    // In builds of the workspace a dependency has the features of all its users together; the
    // product is shipped with its own alone.
    check(
        "product by itself",
        &["cargo", "check", "--locked", "--quiet", "--package", "synconce", "--bin", "synconce"],
    ),
    check("mutants for the proof", &["xtask", "prove", "--build"]),
];

/// Checks that need a machine without other work.
pub(crate) const AFTER_TESTS: &[Check] = &[Check {
    // A short proof of the promise; `cargo xtask prove` is the long one.
    failure: Some("NOT AS EXPECTED: "),
    ..check("proof", &["xtask", "prove", "--quick"])
}];

impl Check {
    /// Runs the command, in the test run `mark`.
    pub(crate) fn run(&self, mark: &str, priority: Priority) -> CheckOutcome {
        let mut needed = Command::new(self.needs[0]);
        needed.args(&self.needs[1..]).stdout(Stdio::null()).stderr(Stdio::null());
        if !needed.status().is_ok_and(|status| status.success()) {
            return CheckOutcome::Skipped(format!("{} fails", self.needs.join(" ")));
        }
        let program: PathBuf = match self.words[0] {
            // Built with the tests. `cargo xtask` compiles it again, with the features that it
            // has alone.
            "xtask" => {
                std::env::current_exe().expect("the name of this program").with_file_name("xtask")
            }
            program => program.into(),
        };
        let mut command = match priority {
            Priority::Normal => command::new(program),
            Priority::Idle => {
                let mut command = command::new("chrt");
                command.args(["--idle", "0"]).arg(program);
                command
            }
        };
        command.args(&self.words[1..]).env("CARGO_TERM_COLOR", "never").env(MARK, mark);
        let ended = command::run(&mut command);
        if ended.passed {
            CheckOutcome::Passed
        } else {
            CheckOutcome::Failed(self.failures(&ended.output))
        }
    }

    /// Returns what `output` says of each failure.
    fn failures(&self, output: &str) -> Vec<String> {
        let Some(start) = self.failure else { return vec![output.to_owned()] };
        let named = output.lines().filter_map(|line| line.strip_prefix(start));
        let named: Vec<_> = named.map(str::to_owned).collect();
        if named.is_empty() { vec![tail(output)] } else { named }
    }
}

/// The variable by which `scripts/leftovers` finds the processes of a test run.
pub(crate) const MARK: &str = "SYNCONCE_TEST_RUN";

/// Returns a value of [`MARK`] for this run.
pub(crate) fn new_mark() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{}.{now}", std::process::id())
}

/// What is on the machine before the tests.
pub(crate) struct Leftovers {
    mark: String,
    before: tempfile::NamedTempFile,
}

impl Leftovers {
    /// Lists what is there now, for the test run `mark`.
    ///
    /// # Errors
    /// The list cannot be made.
    pub(crate) fn before(mark: &str) -> Result<Self, String> {
        let file = tempfile::NamedTempFile::new().and_then(|file| Ok((file.reopen()?, file)));
        let (list, before) = file.map_err(|error| format!("cannot make a file: {error}"))?;
        let mut command = command::new("scripts/leftovers");
        let ended = command.arg(mark).stdin(Stdio::null()).stdout(list).output();
        let ended = ended.map_err(|error| format!("cannot run scripts/leftovers: {error}"))?;
        if !ended.status.success() {
            return Err(String::from_utf8_lossy(&ended.stderr).into_owned());
        }
        Ok(Self { mark: mark.to_owned(), before })
    }

    /// Returns what is there in addition, if it is still there after some seconds.
    pub(crate) fn found(&self) -> Option<String> {
        let mut command = command::new("scripts/leftovers");
        let ended = command::run(command.arg(&self.mark).arg(self.before.path()));
        (!ended.passed).then_some(ended.output)
    }
}
