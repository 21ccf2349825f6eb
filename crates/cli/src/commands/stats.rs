//! Prints the statistics of a run.

use crate::commands::output::Output;
use crate::text::{OutputStream, micros, printable, shell, whole};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use synconce_durable::{pins, record};
use synconce_probe::mounts::{self, Mount};
use synconce_run::{Accounts, CommitReport, Finished, PassReason, RunOutcome, Tally};

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

/// The options of a run that its statistics show.
pub struct Manner {
    /// Whether the filter answered: then no calls are counted.
    pub sealed: bool,
    /// Whether a commit was asked for.
    pub commit: bool,
    /// The commit of `tree run --commit`.
    pub tree: Option<TreeCommit>,
}

/// The commit of a tree at the end of a run in it.
pub struct TreeCommit {
    pub name: String,
    /// How long the commit took, in microseconds; None if the tree is not committed.
    pub micros: Option<u64>,
}

#[derive(Serialize)]
struct Stats<'a> {
    started: &'a str,
    /// Wall time from the start to the end of the commit, in microseconds.
    wall_micros: u64,
    sealed: bool,
    /// committed, not-asked, nothing-held, interrupted or not-started.
    outcome: &'static str,
    #[serde(flatten)]
    accounts: &'a Accounts,
    commit: &'a Option<CommitReport>,
    /// Absent except for `tree run --commit` that has committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    tree_commit_micros: Option<u64>,
    /// Null in a sealed run, which counts no calls.
    syncs: Option<u64>,
    timed: Option<u64>,
    sync_micros: Option<[u64; 2]>,
    marker_micros: u64,
    checkpoint_micros: u64,
    supervisor_micros: u64,
    /// How long the timed syncs would have taken, at least and at most, less the cost of the run.
    saved_micros: Option<[u64; 2]>,
    #[serde(skip)]
    waited_micros: Option<[u64; 2]>,
}

/// Prints the statistics of `finished`: as JSON to `output`, or as a table to standard error.
/// Prints no table if the command was not started.
pub fn print(finished: &Finished, clock: &Clock, manner: &Manner, output: Output) {
    let balance = &finished.balance;
    let stats = Stats {
        started: &clock.started,
        wall_micros: clock.since.elapsed().as_micros() as u64,
        sealed: manner.sealed,
        outcome: match finished.outcome {
            _ if !finished.began => "not-started",
            RunOutcome::Committed => "committed",
            RunOutcome::NotAsked => "not-asked",
            RunOutcome::NothingHeld => "nothing-held",
            RunOutcome::Interrupted { .. } => "interrupted",
        },
        accounts: &finished.accounts,
        commit: &finished.commit,
        tree_commit_micros: manner.tree.as_ref().and_then(|tree| tree.micros),
        syncs: (!manner.sealed).then_some(balance.syncs),
        timed: (!manner.sealed).then_some(balance.timed),
        sync_micros: balance.sync_micros,
        marker_micros: balance.marker_micros,
        checkpoint_micros: balance.checkpoint_micros,
        supervisor_micros: balance.supervisor_micros,
        saved_micros: balance
            .saved_micros(finished.commit.as_ref().map_or(0, |commit| commit.micros)),
        waited_micros: balance.waited_micros(),
    };
    let print_table = || {
        if !finished.began {
            return;
        }
        // A closed standard error is not a failure of the run.
        let _ = OutputStream::new(rustix::stdio::stderr())
            .write_all(table(&stats, &finished.outcome, manner).as_bytes());
    };
    if let Err(error) = output.write_line_or(&stats, print_table) {
        error.report();
    }
}

fn table(stats: &Stats<'_>, outcome: &RunOutcome, manner: &Manner) -> String {
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
        let point = printable(&one.mount_point.to_string_lossy());
        text += &format!("commit {point} ({}) {how}\n", one.type_name);
    }
    if let Some(everything) = commit.and_then(|commit| commit.everything.as_ref()) {
        let how = everything.micros.map_or_else(|| "not durable".to_owned(), micros);
        text += &format!("commit all disks (sync(2)) {how}\n");
    }
    if let Some(commit) = commit {
        text += &format!("commit in all {}\n", micros(commit.micros));
    }
    text += &match (&manner.tree, commit) {
        (Some(TreeCommit { name, micros: Some(took) }), _) => {
            format!("commit of the tree {name} {}\n", micros(*took))
        }
        (Some(TreeCommit { micros: None, .. }), _) => {
            "commit none: the command failed\n".to_owned()
        }
        (None, Some(_)) => String::new(),
        (None, None) => {
            // A sealed run counts no calls.
            let held = (!stats.sealed).then_some(held);
            format!("commit none: {}\n", no_commit(outcome, manner, held))
        }
    };
    text += &format!("wall time {}\n", micros(stats.wall_micros));
    text + &balance(stats)
}

/// Returns the lines with what the run cost, and with what it saved.
fn balance(stats: &Stats<'_>) -> String {
    let (syncs, timed) = (stats.syncs.unwrap_or(0), stats.timed.unwrap_or(0));
    let (held, commit) = (stats.accounts.total().held, stats.commit.as_ref());
    if held == 0 && commit.is_none() {
        return String::new();
    }
    let costs = [
        ("commit", stats.checkpoint_micros + commit.map_or(0, |commit| commit.micros), ""),
        ("marker", stats.marker_micros, ""),
        ("supervisor", stats.supervisor_micros, " (processor)"),
    ];
    let costs = costs.into_iter().filter(|(_, cost, _)| *cost > 0);
    let costs: Vec<_> =
        costs.map(|(name, cost, kind)| format!("{name} {}{kind}", micros(cost))).collect();
    let mut text = format!("cost: {}\n", costs.join(", "));
    let opens = opens(&stats.accounts.calls);
    if syncs + opens < held {
        let (syncs, held) = (whole(syncs), whole(held - opens));
        text += &format!("{syncs} of {held} held calls would have waited for a disk\n");
    }
    if opens > 0 {
        text += &without_flag(opens);
    }
    if syncs > 0 {
        let waited = stats.waited_micros.zip(stats.sync_micros);
        let there = || measured_at(commit);
        text += &held_line(syncs, timed, waited.map(|(all, [each, _])| (all, each)), there);
    }
    if let Some([least, most]) = stats.saved_micros {
        text += &format!("saved, less the cost: {} to {}\n", micros(least), micros(most));
    }
    text
}

/// Returns how many opens lost their `O_SYNC` or `O_DSYNC`.
fn opens(calls: &BTreeMap<String, Tally>) -> u64 {
    let is_open = |(name, _): &(&String, &Tally)| name.starts_with("open");
    calls.iter().filter(is_open).map(|(_, tally)| tally.held).sum()
}

/// Returns the line about `opens` that lost their `O_SYNC`.
fn without_flag(opens: u64) -> String {
    let (count, noun) = (whole(opens), if opens == 1 { "open" } else { "opens" });
    let whose = if opens == 1 { "its" } else { "their" };
    format!("{count} {noun} without {whose} O_SYNC: the syncs of {whose} writes are not counted\n")
}

/// Returns a directory on the disk of the held calls: the current one, unless `commit` has no file
/// system but others.
fn measured_at(commit: Option<&CommitReport>) -> String {
    let points: Vec<_> =
        commit.iter().flat_map(|commit| &commit.file_systems).map(|one| &one.mount_point).collect();
    let mounts = mounts::ours().unwrap_or_default();
    let is_here = |mount: &Mount| points.iter().any(|point| **point == mount.point);
    match points.first() {
        Some(first) if !pins::mount_of(Path::new("."), &mounts).is_ok_and(is_here) => {
            shell(&[first.to_string_lossy().into_owned()])
        }
        _ => ".".to_owned(),
    }
}

/// Returns the line with what was held: `timed` of the held `syncs` would have taken `waited`, the
/// microseconds of all at least and at most, and of each at most. `there` names their disk.
fn held_line(
    syncs: u64,
    timed: u64,
    waited: Option<([u64; 2], u64)>,
    there: impl Fn() -> String,
) -> String {
    let count = whole(syncs);
    let noun = if syncs == 1 { "sync" } else { "syncs" };
    let Some(([least, most], each)) = waited else {
        return format!("held {count} {noun}; what one costs there: synconce doctor {}\n", there());
    };
    let part = match (timed, timed == syncs) {
        (1, true) => "that is".to_owned(),
        (1, false) => "1 of them is".to_owned(),
        (_, true) => "one by one".to_owned(),
        (_, false) => format!("{} of them one by one", whole(timed)),
    };
    // With the part, a line of 80 columns has no room for it.
    let each = match timed {
        2.. if timed == syncs => format!(" (up to {} each)", micros(each)),
        _ => String::new(),
    };
    format!("held {count} {noun}; {part} {} to {}{each}\n", micros(least), micros(most))
}

/// Returns why there is no report of a commit. `held` is the count of held calls.
fn no_commit(outcome: &RunOutcome, manner: &Manner, held: Option<u64>) -> &'static str {
    match outcome {
        RunOutcome::NotAsked if manner.commit => "the run around this one commits",
        RunOutcome::NotAsked if held == Some(0) => "it was not asked for; no sync was held",
        RunOutcome::NotAsked => "it was not asked for",
        RunOutcome::NothingHeld => "no sync was held",
        RunOutcome::Committed | RunOutcome::Interrupted { .. } => "it was not finished",
    }
}

fn section(text: &mut String, title: &str, rows: &BTreeMap<String, Tally>) {
    if rows.is_empty() {
        return;
    }
    // A program of another user may have any name.
    let rows: Vec<_> = rows.iter().map(|(name, tally)| (printable(name), tally)).collect();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let width = width.max(title.len());
    *text += &format!("{title:width$} {:>10} {:>10} {:>10}\n", "held", "passed", "refused");
    for (name, Tally { held, passed, refused, .. }) in rows {
        *text += &format!("{name:width$} {held:>10} {passed:>10} {refused:>10}\n");
    }
}

/// Prints why calls passed.
fn reasons(text: &mut String, calls: &BTreeMap<String, Tally>) {
    for (call, tally) in calls {
        for (reason, count) in &tally.reasons {
            *text += &passed(*count, call, *reason);
        }
    }
}

fn passed(count: u64, call: &str, reason: PassReason) -> String {
    format!("passed {} {call}: {}\n", whole(count), words(reason))
}

fn words(reason: PassReason) -> &'static str {
    match reason {
        PassReason::Memory => "in memory: a sync costs nothing",
        PassReason::Volatile => "on a volatile overlay: a sync costs nothing",
        PassReason::Network => "on a network file system",
        PassReason::Fuse => "on a FUSE file system",
        PassReason::OtherType => "on a file system of a type that is not held",
        PassReason::NoFile => "a pipe, socket, device or closed descriptor",
        PassReason::Arguments => "arguments by which the kernel syncs nothing",
        PassReason::Unseen => "the caller could not be examined",
        PassReason::Rule => "by --only or --except",
        PassReason::CommitOnly => "outside of --commit-only, or of --bind",
        PassReason::Real => "real, by synconce real",
        PassReason::Disk => "the caller reads the disk itself",
        PassReason::Uncovered => "the commit could not cover the file in time",
        PassReason::Traced => "the caller could not be traced",
        PassReason::WriteError => "an earlier write had failed",
        PassReason::ErrorUnknown => "an earlier write error cannot be looked up",
        PassReason::NeverHeld => "a call that is never held",
        PassReason::AfterEnd => "after the end of the command",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_reasons_fit_80_columns() {
        use PassReason::{
            AfterEnd, Arguments, CommitOnly, Disk, ErrorUnknown, Fuse, Memory, Network, NeverHeld,
            NoFile, OtherType, Real, Rule, Traced, Uncovered, Unseen, Volatile, WriteError,
        };
        for reason in [
            AfterEnd,
            Arguments,
            CommitOnly,
            Disk,
            ErrorUnknown,
            Fuse,
            Memory,
            Network,
            NeverHeld,
            NoFile,
            OtherType,
            Real,
            Rule,
            Traced,
            Uncovered,
            Unseen,
            Volatile,
            WriteError,
        ] {
            // The longest name of a call.
            let line = passed(999_999, "open_by_handle_at", reason);
            assert!(line.trim_end().len() <= 80, "{line}");
        }
        assert!(without_flag(999_999).trim_end().len() <= 80);
    }

    #[test]
    fn names_of_programs_are_escaped_and_aligned() {
        let tally = Tally { held: 1, ..Tally::default() };
        let rows = ["a\u{1b}[2J\nb", "ö"].map(|name| (name.to_owned(), tally.clone()));
        let mut text = String::new();
        section(&mut text, "program", &rows.into());
        let wanted = "program             held     passed    refused\n\
                      a\\u{1b}[2J\\nb          1          0          0\n\
                      ö                      1          0          0\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn the_line_of_what_was_held_fits_80_columns() {
        for (syncs, timed, waited, line) in [
            (1, 1, Some(([3_850, 7_700], 7_700)), "held 1 sync; that is 3.9 ms to 7.7 ms"),
            (3, 1, Some(([3_850, 7_700], 7_700)), "held 3 syncs; 1 of them is 3.9 ms to 7.7 ms"),
            (9, 0, None, "held 9 syncs; what one costs there: synconce doctor /mnt"),
            (
                5_210,
                5_210,
                Some(([20_550_000, 41_100_000], 7_900)),
                "held 5,210 syncs; one by one 20.55 s to 41.10 s (up to 7.9 ms each)",
            ),
            (
                99_999,
                99_998,
                Some(([4_999_995_000, 9_999_990_000], 100_000)),
                "held 99,999 syncs; 99,998 of them one by one 4999.99 s to 9999.99 s",
            ),
        ] {
            let said = held_line(syncs, timed, waited, || "/mnt".to_owned());
            assert_eq!(said.trim_end(), line);
            assert!(line.len() <= 80, "{line}");
        }
    }
}
