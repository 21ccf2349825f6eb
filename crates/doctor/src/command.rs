//! Where the time of a command went: reads the record of its syncs, and says what they cost.

mod causes;
mod compare;
mod entries;
mod export;
mod record;
mod savings;
mod spread;
mod steps;
mod tally;
pub(crate) mod text;
mod waits;

use self::record::CommandRecord;
use crate::error::Error;
use crate::finding::{self, Finding};
use serde::Serialize;
use std::io::BufRead;

pub use self::compare::{CommandComparison, ComparedGroup, compare};
pub use self::entries::{CommandEnding, Emulated, TriggerRuns};
pub use self::export::{RecordFormat, export_record};
pub use self::record::RecordSums;
pub use self::savings::Savings;
pub use self::steps::{BuildSteps, StepWaits};
pub use self::tally::{Dropped, Slowest, SyncGroup};
pub use self::text::{asks_builder, builds_without_daemon};
pub use self::waits::{NotCovered, Waits};

/// What is known about the syncs of a command.
#[derive(Clone, Debug, Serialize)]
pub struct CommandReport {
    /// One sentence.
    pub verdict: String,
    /// The words of the command.
    pub command: Vec<String>,
    /// How the command ended; none if the record has no end.
    pub ended: Option<CommandEnding>,
    /// Seconds from the start of the command to its end, or to its last sync.
    pub seconds: f64,
    /// The syncs.
    pub waits: Waits,
    /// What `synconce run` would save.
    pub savings: Savings,
    /// What was not timed.
    pub not_covered: Vec<NotCovered>,
    /// What dpkg has started to handle triggers.
    pub triggers: Vec<TriggerRuns>,
    /// Programs of another architecture.
    pub emulated: Vec<Emulated>,
    /// Steps of image builds, which a daemon has started.
    pub build: Option<BuildSteps>,
    /// Why no steps of image builds were seen, if the record says it.
    pub unseen_steps: Option<String>,
    /// Causes beside the waits for syncs, the most costly first.
    pub findings: Vec<Finding>,
    /// Names of findings that were left out, as asked.
    pub ignored: Vec<&'static str>,
}

/// Reads a record and derives the report, without the findings whose names are `ignored`.
///
/// # Errors
/// The record cannot be read, or is none.
pub fn examine_record(record: impl BufRead, ignored: &[String]) -> Result<CommandReport, Error> {
    let record = CommandRecord::read(record)?;
    let waits = Waits::from_tally(&record.tally);
    let savings = Savings::from_record(&record, &waits);
    let not_covered = NotCovered::from_tally(&record.tally);
    let seconds = record.seconds();
    let build = BuildSteps::from_tally(&record.steps, seconds);
    let (ignored, findings) = finding::split(causes::derive(&record), ignored);
    let verdict =
        text::verdict(&record, &waits, &savings, &not_covered, build.as_ref(), findings.first());
    let CommandRecord { command, ended, triggers, emulated, unseen_steps, .. } = record;
    Ok(CommandReport {
        verdict,
        command,
        ended,
        seconds,
        waits,
        savings,
        not_covered,
        triggers,
        emulated,
        build,
        unseen_steps,
        findings,
        ignored,
    })
}

impl CommandReport {
    /// Returns the least seconds that `synconce run`, or the remedy of the first finding, saves.
    pub fn most_seconds(&self) -> f64 {
        finding::most_seconds(&self.findings).max(self.savings.at_least)
    }

    /// Adds `why` to the verdict, unless steps of a build were seen or the record says why not.
    pub fn explain_unseen_steps(&mut self, why: &str) {
        if self.build.is_none() && self.unseen_steps.is_none() {
            self.add_to_verdict(why);
        }
    }

    /// Adds `why` to the verdict if calls have no time because their callers could not be examined.
    pub fn explain_unexamined(&mut self, why: &str) {
        if self.not_covered.iter().any(|kind| kind.what == waits::UNEXAMINED) {
            self.add_to_verdict(why);
        }
    }

    /// Adds `why` to the verdict if a sync was waited for.
    pub fn explain_waits(&mut self, why: &str) {
        if self.waits.calls > 0 {
            self.add_to_verdict(why);
        }
    }

    fn add_to_verdict(&mut self, why: &str) {
        self.verdict.push_str(&format!("; {why}"));
    }

    /// Returns the report for a terminal. `again` is the command line of the same command under
    /// `synconce run`.
    pub fn text(&self, again: &str) -> String {
        text::render(self, again)
    }
}

#[cfg(test)]
mod tests;
