//! Two records of a command: what has changed.

use super::CommandReport;
use super::tally::SyncGroup;
use super::text::{group_name, whole};
use crate::units::seconds;
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt::Write;

/// How many groups of a kind are shown.
const SHOWN: usize = 10;

/// Two records, the earlier one first.
#[derive(Clone, Debug, Serialize)]
pub struct CommandComparison {
    /// One sentence.
    pub verdict: String,
    /// Seconds that the command took.
    pub seconds: [f64; 2],
    /// Seconds in which at least one sync was waited for that `synconce run` holds.
    pub covered: [f64; 2],
    /// By system call, those that have changed most first.
    pub by_call: Vec<ComparedGroup>,
    /// By program.
    pub by_program: Vec<ComparedGroup>,
    /// By directory of the file.
    pub by_directory: Vec<ComparedGroup>,
}

/// Syncs with something in common, in two records.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedGroup {
    /// The call, program or directory.
    pub name: String,
    /// How many.
    pub calls: [u64; 2],
    /// The sum of their waits.
    pub seconds: [f64; 2],
}

/// Compares the reports of two records.
pub fn compare(before: &CommandReport, now: &CommandReport) -> CommandComparison {
    let covered = [before.waits.covered, now.waits.covered];
    let said = |report: &CommandReport| {
        format!("{} of {}", seconds(report.waits.covered), seconds(report.seconds))
    };
    let name = now.command.first().map_or("", String::as_str);
    let mut verdict =
        format!("{name}: waits for syncs were {} before, and are {} now", said(before), said(now));
    for (differs, what) in [
        (before.ended.is_none(), "; the earlier record has no end"),
        (now.ended.is_none(), "; the record has no end"),
        (before.command != now.command, "; the commands differ"),
        // Such a group of one record looks as if it had none.
        (has_dropped(before) || has_dropped(now), "; groups with short waits were dropped"),
    ] {
        verdict += if differs { what } else { "" };
    }
    let (old, new) = (&before.waits, &now.waits);
    CommandComparison {
        verdict,
        seconds: [before.seconds, now.seconds],
        covered,
        by_call: groups(&old.by_call, &new.by_call),
        by_program: groups(&old.by_program, &new.by_program),
        by_directory: groups(&old.by_directory, &new.by_directory),
    }
}

fn has_dropped(report: &CommandReport) -> bool {
    report.waits.dropped_programs.is_some() || report.waits.dropped_directories.is_some()
}

/// Returns the groups of both by their names, those whose waits have changed most first.
fn groups(before: &[SyncGroup], now: &[SyncGroup]) -> Vec<ComparedGroup> {
    let is_new = |group: &&SyncGroup| before.iter().all(|old| old.name != group.name);
    let of = |groups: &[SyncGroup], name: &str| {
        let found = groups.iter().find(|group| group.name == name);
        found.map_or((0, 0.0), |group| (group.calls, group.seconds))
    };
    let names = before.iter().chain(now.iter().filter(is_new));
    let compared = names.map(|group| {
        let [old, new] = [of(before, &group.name), of(now, &group.name)];
        let name = group_name(group).to_owned();
        ComparedGroup { name, calls: [old.0, new.0], seconds: [old.1, new.1] }
    });
    let mut all: Vec<_> = compared.collect();
    let change = |it: &ComparedGroup| ((it.seconds[0] - it.seconds[1]).abs() * 1e9) as u64;
    all.sort_by_key(|group| Reverse(change(group)));
    all
}

impl CommandComparison {
    /// Returns the comparison for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.verdict);
        // A write to a string cannot fail.
        let _ = writeln!(text, "  {:<13}{:>16} {:>16}", "", "before", "now");
        for (title, groups) in [
            ("by call", &self.by_call),
            ("by program", &self.by_program),
            ("by directory", &self.by_directory),
        ] {
            for (at, group) in groups.iter().take(SHOWN).enumerate() {
                let title = if at == 0 { title } else { "" };
                let [old, new] = [0, 1].map(|side| {
                    format!("{:>7} {:>8}", whole(group.calls[side]), seconds(group.seconds[side]))
                });
                let _ = writeln!(text, "  {title:<13}{old} {new}  {}", group.name);
            }
        }
        text
    }
}
