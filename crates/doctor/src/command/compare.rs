//! Two records of a command: what has changed.

use super::tally::SyncGroup;
use super::text::{group_name, whole};
use super::{BuildSteps, CommandReport, StepWaits, Waits};
use crate::units::seconds;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;
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
    /// Steps of image builds, if a record has some.
    pub build: Option<ComparedSteps>,
}

/// The steps of image builds in two records.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedSteps {
    /// Seconds in which at least one sync of a step was waited for.
    pub covered: [f64; 2],
    /// By command of the step: the steps of two builds may have other numbers.
    pub by_step: Vec<ComparedGroup>,
    /// By system call.
    pub by_call: Vec<ComparedGroup>,
    /// By program.
    pub by_program: Vec<ComparedGroup>,
    /// By directory of the file.
    pub by_directory: Vec<ComparedGroup>,
}

/// Syncs with something in common, in two records.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedGroup {
    /// The call, program, directory or command of a step.
    pub name: String,
    /// How many.
    pub calls: [u64; 2],
    /// The sum of their waits.
    pub seconds: [f64; 2],
}

/// Compares the reports of two records.
pub fn compare(before: &CommandReport, now: &CommandReport) -> CommandComparison {
    let covered = [before.waits.covered, now.waits.covered];
    let build = ComparedSteps::from_builds([&before.build, &now.build]);
    let name = now.command.first().map_or("", String::as_str);
    let of_steps = build.as_ref().map(|build| build.covered);
    let is_longer = |steps: &[f64; 2]| steps.iter().sum::<f64>() > covered.iter().sum();
    let (of_what, [old, new]) = match of_steps.filter(is_longer) {
        Some(steps) => (" of build steps", steps),
        None => ("", covered),
    };
    let said = |waited, took| format!("{} of {}", seconds(waited), seconds(took));
    let [old, new] = [said(old, before.seconds), said(new, now.seconds)];
    let mut verdict =
        format!("{name}: waits for syncs{of_what} were {old} before, and are {new} now");
    for (differs, what) in [
        (before.ended.is_none(), "; the earlier record has no end"),
        (now.ended.is_none(), "; the record has no end"),
        (before.command != now.command, "; the commands differ"),
        // Such a group of one record looks as if it had none.
        (has_dropped(before) || has_dropped(now), "; groups with short waits were dropped"),
    ] {
        verdict += if differs { what } else { "" };
    }
    let waits = [Some(&before.waits), Some(&now.waits)];
    CommandComparison {
        verdict,
        seconds: [before.seconds, now.seconds],
        covered,
        by_call: groups(waits, |waits| &waits.by_call),
        by_program: groups(waits, |waits| &waits.by_program),
        by_directory: groups(waits, |waits| &waits.by_directory),
        build,
    }
}

impl ComparedSteps {
    fn from_builds(builds: [&Option<BuildSteps>; 2]) -> Option<Self> {
        let waits = builds.map(|build| build.as_ref().map(|build| &build.waits));
        waits.iter().flatten().next()?;
        let steps = builds.map(|build| {
            let steps = build.iter().flat_map(|build| &build.steps);
            let one = |step: &StepWaits| (step.words().to_owned(), step.calls, step.waits);
            steps.map(one).collect::<Vec<_>>()
        });
        Some(Self {
            covered: waits.map(|waits| waits.map_or(0.0, |waits| waits.covered)),
            by_step: compared(&steps),
            by_call: groups(waits, |waits| &waits.by_call),
            by_program: groups(waits, |waits| &waits.by_program),
            by_directory: groups(waits, |waits| &waits.by_directory),
        })
    }
}

/// Whether a group of syncs is missing: of the command, or of build steps.
fn has_dropped(report: &CommandReport) -> bool {
    let build = report.build.as_ref().map(|build| &build.waits);
    let mut all = std::iter::once(&report.waits).chain(build);
    all.any(|waits| waits.dropped_programs.is_some() || waits.dropped_directories.is_some())
}

/// Names, calls and seconds of groups.
type Groups = Vec<(String, u64, f64)>;

/// Returns the groups of one kind in the waits of two records.
fn groups(
    waits: [Option<&Waits>; 2],
    of_kind: impl Fn(&Waits) -> &Vec<SyncGroup>,
) -> Vec<ComparedGroup> {
    let one = |group: &SyncGroup| (group_name(group).to_owned(), group.calls, group.seconds);
    let all = waits.map(|waits| waits.into_iter().flat_map(&of_kind).map(one).collect());
    compared(&all)
}

/// Returns the groups of both by their names, those whose waits have changed most first.
fn compared(both: &[Groups; 2]) -> Vec<ComparedGroup> {
    let mut all: Vec<ComparedGroup> = Vec::new();
    let mut places = HashMap::new();
    for (side, groups) in both.iter().enumerate() {
        for (name, calls, seconds) in groups {
            let at = *places.entry(name).or_insert_with(|| {
                let name = name.clone();
                all.push(ComparedGroup { name, calls: [0; 2], seconds: [0.0; 2] });
                all.len() - 1
            });
            all[at].calls[side] += calls;
            all[at].seconds[side] += seconds;
        }
    }
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
        show(&mut text, &self.by_call, &self.by_program, &self.by_directory);
        if let Some(build) = &self.build {
            let _ = writeln!(text, "\nBuild steps of all builds");
            show_kind(&mut text, "by step", &build.by_step);
            show(&mut text, &build.by_call, &build.by_program, &build.by_directory);
        }
        text
    }
}

fn show(
    text: &mut String,
    by_call: &[ComparedGroup],
    by_program: &[ComparedGroup],
    by_directory: &[ComparedGroup],
) {
    show_kind(text, "by call", by_call);
    show_kind(text, "by program", by_program);
    show_kind(text, "by directory", by_directory);
}

fn show_kind(text: &mut String, title: &str, groups: &[ComparedGroup]) {
    for (at, group) in groups.iter().take(SHOWN).enumerate() {
        let title = if at == 0 { title } else { "" };
        let [old, new] = [0, 1].map(|side| {
            format!("{:>7} {:>8}", whole(group.calls[side]), seconds(group.seconds[side]))
        });
        let _ = writeln!(text, "  {title:<13}{old} {new}  {}", group.name);
    }
}
