//! A row of the table: its role, what it has to show, and its findings.

use crate::campaign::Findings;
use crate::config::RunConfig;
use crate::{Error, Result};
use serde::Serialize;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The role of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// The shipped tool on disks that keep what they report as flushed.
    Promise,
    /// Without flushes no promise can hold: if the control loses nothing, the rig detects nothing.
    Control,
    /// The tool without one step.
    Mutant,
    /// The tool without a step that POSIX requires and that none of these file systems needs.
    NeedlessMutant,
    /// Another tool, or none.
    Rival,
}

/// What a row has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The promise is kept at every cut.
    Kept,
    /// The promise is broken at a cut; otherwise the rig would miss a lost flush.
    Broken,
    /// The promise is broken in at least one of the rows of this name.
    BrokenSomewhere,
    /// Any result is accepted and printed.
    Shown,
}

impl Role {
    /// Returns the role's word in the table and in `--only`.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Promise => "promise",
            Self::Control => "control",
            Self::Mutant | Self::NeedlessMutant => "mutant",
            Self::Rival => "rival",
        }
    }

    /// Returns what rows of this role have to show.
    pub(crate) fn expected(self) -> Expected {
        match self {
            Self::Promise => Expected::Kept,
            Self::Control => Expected::Broken,
            Self::Mutant => Expected::BrokenSomewhere,
            Self::NeedlessMutant | Self::Rival => Expected::Shown,
        }
    }
}

/// A row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub role: Role,
    pub name: String,
    pub config: RunConfig,
    #[serde(flatten)]
    pub findings: Findings,
}

impl Row {
    /// Returns the row of these findings. An error fails this row alone: the others are made.
    pub(crate) fn new(
        role: Role,
        name: &str,
        config: RunConfig,
        findings: Result<Findings>,
    ) -> Self {
        let of_error =
            |error: Error| Findings { error: Some(error.to_string()), ..Findings::default() };
        let findings = findings.unwrap_or_else(of_error);
        Self { role, name: name.to_owned(), config, findings }
    }

    /// Prints the finished row. Also prints an error and the first broken promise: they must not be
    /// lost if the hours of work are interrupted.
    pub(crate) fn print_progress(&self) {
        eprintln!("{self}");
        let Findings { error, first, .. } = &self.findings;
        let is_kept = self.role.expected() == Expected::Kept;
        for text in error.iter().chain(first.iter().filter(|_| is_kept)) {
            eprintln!("{text}");
        }
    }

    fn found(&self) -> String {
        if self.findings.error.is_some() {
            return "ERROR".to_owned();
        }
        if let Some(reason) = &self.findings.skipped {
            return format!("SKIPPED: {reason}");
        }
        if self.findings.found.is_empty() {
            return "-".to_owned();
        }
        let found = self.findings.found.iter();
        found.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.findings.millis / self.findings.cuts.max(1) as u64;
        let (group, name, config) = (self.role.group(), &self.name, self.config.to_string());
        let Findings { cuts, refused, silent, .. } = self.findings;
        write!(f, "{group:8} {name:26} {config:38} {cuts:5} cuts  {each:4} ms each  ")?;
        write!(f, "{refused:3} refused  {}", self.found())?;
        if silent > 0 {
            write!(f, "  ({silent} lost without a note, as documented)")
        } else {
            Ok(())
        }
    }
}

/// Makes the findings of a row; the argument is the seed.
type Make<'a> = Box<dyn Fn(u64) -> Result<Findings> + Sync + 'a>;

/// A row that has not been made yet.
pub(crate) struct Job<'a> {
    pub role: Role,
    pub name: String,
    pub config: RunConfig,
    pub make: Make<'a>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        role: Role,
        name: impl Into<String>,
        config: RunConfig,
        make: impl Fn(u64) -> Result<Findings> + Sync + 'a,
    ) -> Self {
        Self { role, name: name.into(), config, make: Box::new(make) }
    }

    /// Makes the row.
    pub(crate) fn row(&self, seed: u64) -> Row {
        Row::new(self.role, &self.name, self.config, caught(|| (self.make)(seed)))
    }
}

/// Returns what `make` returns. A panic is an error of the row, too: a rig panics if it cannot be
/// taken down.
pub(crate) fn caught<T>(make: impl FnOnce() -> Result<T>) -> Result<T> {
    let made = catch_unwind(AssertUnwindSafe(make));
    made.unwrap_or_else(|_| Err("it panicked, as printed above".into()))
}

/// Makes the row of each of `jobs` that `is_due` in view of the rows that are made by then. Makes
/// `workers` rows at a time. Returns the rows in the order of the jobs, each with the number of its
/// job.
pub(crate) fn make_rows<J: Sync, R: Send>(
    jobs: &[J],
    workers: usize,
    is_due: impl Fn(&J, &[(usize, R)]) -> bool + Sync,
    make: impl Fn(usize, &J) -> R + Sync,
) -> Vec<(usize, R)> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, SeqCst);
                    let Some(job) = jobs.get(index) else { return };
                    if is_due(job, &rows.lock().expect("no row panics")) {
                        let row = make(index, job);
                        rows.lock().expect("no row panics").push((index, row));
                    }
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("no row panics");
    rows.sort_by_key(|(index, _)| *index);
    rows
}
