//! Prints the statistics of a run.

use crate::commands::json::Sink;
use crate::text::{micros, say, whole};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Instant;
use synconce_durable::record;
use synconce_run::{Accounts, Balance, CommitReport, Finished, Outcome, PassReason, Tally};

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
    #[serde(flatten)]
    balance: &'a Balance,
    /// About how long the timed syncs would have taken.
    saved_micros: Option<u64>,
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
        balance: &finished.balance,
        saved_micros: finished.balance.saved_micros(),
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
    reasons(&mut text, &stats.accounts.calls);
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
    text += &format!("wall time {}\n", micros(stats.wall_micros));
    text + &balance(stats)
}

/// Returns the lines with what the run cost, and with what it saved.
fn balance(stats: &Stats<'_>) -> String {
    let Balance { syncs, timed, marker_micros, supervisor_micros, .. } = *stats.balance;
    if syncs == 0 {
        return String::new();
    }
    let commit = stats.commit.as_ref().map_or(0, |commit| commit.micros);
    let [commit, marker, supervisor] = [commit, marker_micros, supervisor_micros].map(micros);
    let cost =
        format!("cost: commit {commit}, marker {marker}, supervisor {supervisor} (processor)\n");
    let count = whole(syncs);
    let noun = if syncs == 1 { "sync" } else { "syncs" };
    let Some((saved, each)) = stats.saved_micros.zip(stats.balance.sync_micros) else {
        return cost + &format!("held {count} {noun}; what one costs there: synconce doctor DIR\n");
    };
    let ([shortest, longest], saved) = (each.map(micros), micros(saved));
    let part = match timed == syncs {
        true => "here that is".to_owned(),
        false => format!("for {} of them that is", whole(timed)),
    };
    cost + &format!("held {count} {noun}; {part} about {saved} ({shortest} to {longest} each)\n")
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
    *text += &format!("{title:width$} {:>10} {:>10} {:>10}\n", "held", "passed", "refused");
    for (name, Tally { held, passed, refused, .. }) in rows {
        *text += &format!("{name:width$} {held:>10} {passed:>10} {refused:>10}\n");
    }
}

/// Prints why calls passed.
fn reasons(text: &mut String, calls: &BTreeMap<String, Tally>) {
    for (call, tally) in calls {
        for (reason, count) in &tally.reasons {
            *text += &format!("passed {count} {call}: {}\n", words(*reason));
        }
    }
}

fn words(reason: PassReason) -> &'static str {
    match reason {
        PassReason::Memory => "in memory, where a sync costs nothing",
        PassReason::Volatile => "on a volatile overlay, where a sync costs nothing",
        PassReason::Network => "on a network file system",
        PassReason::Fuse => "on a FUSE file system",
        PassReason::OtherType => "on a file system of a type that is not held",
        PassReason::NoFile => "a pipe, a socket, a device or a closed descriptor",
        PassReason::Arguments => "arguments by which the kernel syncs nothing",
        PassReason::Unseen => "the caller could not be examined (another user's process)",
        PassReason::Rule => "by --only or --except",
        PassReason::CommitOnly => "outside of --commit-only",
        PassReason::Real => "real, by synconce real",
        PassReason::Uncovered => "the commit could not cover the file system in time",
        PassReason::Traced => "another program traces the caller",
        PassReason::WriteError => "an earlier write had failed",
        PassReason::NeverHeld => "a call that is never held",
        PassReason::AfterEnd => "after the end of the command",
    }
}
