//! Prints the statistics of a run.

use crate::commands::json::Sink;
use crate::text::{micros, say};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Instant;
use synconce_durable::record;
use synconce_run::{Accounts, CommitReport, Finished, Outcome, Tally};

/// What is measured from the start of a run.
pub struct Clock {
    /// ISO 8601, UTC.
    started: String,
    since: Instant,
}

impl Clock {
    /// Starts the clock.
    pub fn start() -> Self {
        Self { started: record::now(), since: Instant::now() }
    }
}

/// How a run was asked for, as far as its statistics say so.
pub struct Manner {
    /// Whether the filter answered: then no calls are counted.
    pub sealed: bool,
    /// Whether a commit was asked for.
    pub commit: bool,
}

#[derive(Serialize)]
struct Stats<'a> {
    started: &'a str,
    /// Wall time from the start to the end of the commit, in microseconds.
    wall_micros: u64,
    sealed: bool,
    /// committed, not-asked, nothing-held or interrupted.
    outcome: &'static str,
    #[serde(flatten)]
    accounts: &'a Accounts,
    commit: &'a Option<CommitReport>,
}

/// Prints the statistics of `finished`: as JSON to `json`, or as a table to standard error.
pub fn print(finished: &Finished, clock: &Clock, manner: &Manner, json: Option<Sink>) {
    let stats = Stats {
        started: &clock.started,
        wall_micros: clock.since.elapsed().as_micros() as u64,
        sealed: manner.sealed,
        outcome: match finished.outcome {
            Outcome::Committed => "committed",
            Outcome::NotAsked => "not-asked",
            Outcome::NothingHeld => "nothing-held",
            Outcome::Interrupted { .. } => "interrupted",
        },
        accounts: &finished.accounts,
        commit: &finished.commit,
    };
    let Some(sink) = json else {
        // A closed standard error is not a failure of the run.
        let _ = io::stderr().write_all(table(&stats, &finished.outcome, manner).as_bytes());
        return;
    };
    let text = serde_json::to_string(&stats).unwrap_or_default() + "\n";
    if let Err(error) = sink.write_text(&text) {
        say(&error);
    }
}

fn table(stats: &Stats<'_>, outcome: &Outcome, manner: &Manner) -> String {
    let mut text = String::new();
    section(&mut text, "call", &stats.accounts.calls);
    section(&mut text, "program", &stats.accounts.programs);
    let Tally { held, unseen, .. } = stats.accounts.total();
    if unseen > 0 {
        text += &format!("{unseen} of {held} held calls: the caller could not be examined\n");
    }
    if stats.sealed {
        text += "calls were held in the kernel, and not counted (sealed)\n";
    }
    let commit = stats.commit.as_ref();
    for one in commit.iter().flat_map(|commit| &commit.file_systems) {
        let how = one.micros.map_or_else(|| "not durable".to_owned(), micros);
        text += &format!("commit {} ({}) {how}\n", one.mount_point.display(), one.type_name);
    }
    if let Some(everything) = commit.and_then(|commit| commit.everything.as_ref()) {
        let how = everything.micros.map_or_else(|| "not durable".to_owned(), micros);
        text += &format!("commit all disks (sync(2)) {how}\n");
    }
    text += &match commit {
        Some(commit) => format!("commit in all {}\n", micros(commit.micros)),
        None => format!("commit none: {}\n", no_commit(outcome, manner)),
    };
    text + &format!("wall time {}\n", micros(stats.wall_micros))
}

/// Returns why there is no report of a commit.
fn no_commit(outcome: &Outcome, manner: &Manner) -> &'static str {
    match outcome {
        Outcome::NotAsked if manner.commit => "the run around this one commits",
        Outcome::NotAsked => "it was not asked for",
        Outcome::NothingHeld => "no sync was held",
        Outcome::Committed | Outcome::Interrupted { .. } => "it was not finished",
    }
}

fn section(text: &mut String, title: &str, rows: &BTreeMap<String, Tally>) {
    if rows.is_empty() {
        return;
    }
    let width = rows.keys().map(String::len).max().unwrap_or(0).max(title.len());
    // Most runs have no process with real syncs.
    let any_real = rows.values().any(|tally| tally.real > 0);
    let column = |text: String| if any_real { format!(" {text:>10}") } else { String::new() };
    let real = column("real".to_owned());
    *text += &format!("{title:width$} {:>10} {:>10}{real} {:>10}\n", "held", "passed", "refused");
    for (name, tally) in rows {
        let Tally { held, passed, real, refused, .. } = tally;
        let real = column(real.to_string());
        *text += &format!("{name:width$} {held:>10} {passed:>10}{real} {refused:>10}\n");
    }
}
