//! The page about a command.

use super::{Card, CardLine, Cell, Column, LEGEND, Page, Part, Section};
use crate::command::text::{RISK, WORTH, dropped, ended, group_name, totals};
use crate::command::{
    BuildSteps, CommandReport, Dropped, NotCovered, Slowest, StepWaits, SyncGroup, TriggerRuns,
    Waits,
};
use crate::finding::NO_UNDO;
use crate::units::{at_least, bytes, seconds, whole};
use synconce_chart::{Bar, Text};

/// Characters of a command line in the title, and in other places.
const TITLE: usize = 200;
const LINE: usize = 2_000;
/// A command line with more characters is not repeated as one that can be typed.
const TYPED: usize = 10_000;

impl CommandReport {
    /// Returns the report as a page, which says that it was made by `made`. `again` is the command
    /// line of the same command under `synconce run`.
    pub fn page(&self, again: &str, made: &str) -> String {
        let run = (self.savings.about >= WORTH).then(|| (self.savings.at_least, self.run(again)));
        let findings = self.findings.iter();
        let findings = findings.map(|it| (it.seconds.unwrap_or_default(), Card::from_finding(it)));
        let mut cards: Vec<_> = run.into_iter().chain(findings).collect();
        cards.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let cards = cards.into_iter().map(|(_, card)| card).collect();
        let build = self.build.as_ref();
        let sections = [
            self.time(),
            Section::new("Syncs", groups(&self.waits)),
            Section::new("Build steps", build.map(steps).into_iter().flatten()),
            self.programs(),
            self.not_timed(),
        ];
        let title = Text::from(self.command.join(" ")).shortened(TITLE);
        Page::text(title, &self.verdict, cards, sections, made)
    }

    /// Returns what to do about the waits for syncs.
    fn run(&self, again: &str) -> Card {
        let (least, about) = (self.savings.at_least, self.savings.about);
        let price = if least >= WORTH {
            format!("at least {}, about {}", at_least(least), seconds(about))
        } else {
            format!("about {}", seconds(about))
        };
        let (calls, waits) = (whole(self.waits.calls as f64), seconds(self.waits.seconds));
        let is_short = again.chars().count() <= TYPED;
        Card {
            name: "synconce run".into(),
            price: price.into(),
            lines: vec![
                CardLine::prose("cause", "the command waits for the disk at each sync"),
                CardLine::prose("evidence", &format!("{calls} syncs, {waits} of waits in all")),
                CardLine::command("do", if is_short { again } else { "synconce run -- COMMAND" }),
                CardLine::prose("undo", NO_UNDO),
                CardLine::prose("risk", RISK),
            ],
        }
    }

    fn time(&self) -> Section {
        let bar = |name: &str, value: f64| Bar {
            name: name.into(),
            value,
            shown: seconds(value).into(),
            ..Bar::default()
        };
        let (critical, covered) = (self.savings.critical, self.waits.covered);
        let bars = [
            bar("waits, nothing else could run", critical),
            bar("waits beside other work", (covered - critical).max(0.0)),
            bar("no wait for a sync", (self.seconds - covered).max(0.0)),
        ];
        let bars = bars.into_iter().filter(|_| self.waits.calls > 0);
        let command = Text::from(ended(self)).shortened(LINE);
        let facts = totals(&self.waits, &self.savings);
        let facts = facts.into_iter().filter(|_| self.waits.calls > 0);
        Section::new(
            "Where the time went",
            [
                Some(Part::Line(command)),
                Part::chart("Time of the command", bars),
                Part::facts(facts),
            ],
        )
    }

    fn programs(&self) -> Section {
        let columns = [Column::text("package"), Column::number("runs"), Column::sorted("at least")];
        let mut triggers = self.triggers.clone();
        triggers.sort_by_key(|trigger| std::cmp::Reverse(trigger.micros));
        let cells = |trigger: &TriggerRuns| {
            vec![
                Cell::text(trigger.package.as_str()),
                Cell::number(whole(trigger.runs as f64), trigger.runs as f64),
                Cell::number(at_least(trigger.seconds()), trigger.seconds()),
            ]
        };
        let emulated = self.emulated.iter().map(|it| {
            let (share, _) = it.share();
            (it.by.as_str(), format!("{:.0} % of the work", 100.0 * share))
        });
        Section::new(
            "Programs",
            [Part::table("Triggers of packages", columns, &triggers, cells), Part::facts(emulated)],
        )
    }

    fn not_timed(&self) -> Section {
        let ignored = self.ignored.iter().map(|name| (*name, "left out by --ignore".to_owned()));
        Section::new(
            "Not timed",
            [
                not_covered(
                    &self.not_covered,
                    "synconce run",
                    ["takes the sync away", "leaves the sync"],
                ),
                Part::facts(ignored),
            ],
        )
    }
}

/// Returns counts and waits by group.
fn groups(waits: &Waits) -> [Option<Part>; 9] {
    let chart = |title, groups: &[SyncGroup]| {
        let bars = groups.iter().map(|it| bar(group_name(it).into(), it.calls, it.seconds));
        Part::chart(title, bars)
    };
    let line = |what, it: Option<Dropped>| Some(Part::Line(dropped(what, it?).into()));
    [
        (waits.calls > 0).then(|| Part::Line(LEGEND.into())),
        chart("Waits by program", &waits.by_program),
        group("By program", "program", &waits.by_program),
        line("programs", waits.dropped_programs),
        group("By call", "call", &waits.by_call),
        chart("Waits by directory", &waits.by_directory),
        group("By directory", "directory", &waits.by_directory),
        line("directories", waits.dropped_directories),
        slowest(&waits.slowest),
    ]
}

/// Returns the steps of image builds, and the syncs of all of them.
fn steps(build: &BuildSteps) -> Vec<Option<Part>> {
    let columns = [
        Column::number("step"),
        Column::text("command"),
        Column::number("syncs"),
        Column::sorted("waits"),
        Column::number("time"),
        Column::text("engine"),
        Column::text("image"),
        Column::text("not seen"),
    ];
    let cells = |step: &&StepWaits| {
        let is_seen = step.unseen.is_none();
        let counted = |cell: Cell| if is_seen { cell } else { Cell::text("") };
        vec![
            Cell::number(step.number.to_string(), f64::from(step.number)),
            Cell::text(step.words()),
            counted(Cell::number(whole(step.calls as f64), step.calls as f64)),
            counted(time(step.waits)),
            time(step.seconds),
            Cell::text(step.engine.as_str()),
            Cell::text(step.image.as_deref().unwrap_or_default()),
            Cell::text(step.unseen.as_deref().unwrap_or_default()),
        ]
    };
    let mut steps: Vec<_> = build.steps.iter().collect();
    // Stable: of equal waits, the earlier step comes first.
    steps.sort_by(|one, other| other.waits.total_cmp(&one.waits));
    let waited = steps.iter().filter(|step| step.calls > 0);
    let bars = waited.map(|step| {
        let name = format!("{}: {}", step.number, step.words());
        bar(name.into(), step.calls, step.waits)
    });
    let first = [
        Some(Part::Line("Steps of all builds in this time. None was held.".into())),
        Part::chart("Waits by step", bars),
        Part::table("Each step", columns, &steps, cells),
    ];
    let not_covered = not_covered(&build.not_covered, "held step", ["does not wait", "waits"]);
    let not_seen = Part::facts([("not seen", build.not_seen.to_owned())]);
    first.into_iter().chain(groups(&build.waits)).chain([not_covered, not_seen]).collect()
}

/// Returns what has no time. The last column, `held`, has the first of `words` for a call that a hold
/// takes away, and the second for others.
fn not_covered(kinds: &[NotCovered], held: &'static str, words: [&'static str; 2]) -> Option<Part> {
    let columns = [
        Column::text("kind of sync"),
        Column::text("call"),
        Column::number("calls"),
        Column::text("first program"),
        Column::text("first file"),
        Column::text(held),
    ];
    let cells = |it: &NotCovered| {
        vec![
            Cell::text(it.what),
            Cell::text(it.call.as_str()),
            Cell::number(whole(it.calls as f64), it.calls as f64),
            Cell::text(it.program.as_str()),
            Cell::text(it.file.as_deref().unwrap_or_default()),
            Cell::text(words[usize::from(!it.is_held)]),
        ]
    };
    Part::table("Calls without a time", columns, kinds, cells)
}

fn bar(name: Text, calls: u64, waits: f64) -> Bar {
    Bar {
        name,
        value: waits,
        shown: seconds(waits).into(),
        note: match calls {
            1 => "1 sync".into(),
            calls => format!("{} syncs", whole(calls as f64)).into(),
        },
        ..Bar::default()
    }
}

fn group(title: &'static str, name: &'static str, groups: &[SyncGroup]) -> Option<Part> {
    let columns = [
        Column::text(name),
        Column::number("syncs"),
        Column::sorted("waits"),
        Column::number("median"),
        Column::number("p99"),
    ];
    Part::table(title, columns, groups, |group| {
        vec![
            Cell::text(group_name(group)),
            Cell::number(whole(group.calls as f64), group.calls as f64),
            time(group.seconds),
            time(group.median),
            time(group.p99),
        ]
    })
}

fn slowest(slowest: &[Slowest]) -> Option<Part> {
    let columns = [
        Column::text("file"),
        Column::text("call"),
        Column::sorted("wait"),
        Column::number("written"),
        Column::text("program, and what started it"),
        Column::number("pid"),
    ];
    Part::table("The longest waits", columns, slowest, |slow| {
        let above = slow.ancestry.iter().map(String::as_str);
        let line: Vec<_> = std::iter::once(slow.program.as_str()).chain(above).collect();
        let written = slow.bytes.map(|count| Cell::number(bytes(count as f64), count as f64));
        vec![
            Cell::text(slow.file.as_deref().unwrap_or("(no file)")),
            Cell::text(slow.call.as_str()),
            time(slow.seconds),
            written.unwrap_or_else(|| Cell::number(String::new(), -1.0)),
            Cell::text(line.join(" < ")),
            Cell::number(slow.process.to_string(), f64::from(slow.process)),
        ]
    })
}

fn time(value: f64) -> Cell {
    Cell::number(seconds(value), value)
}
