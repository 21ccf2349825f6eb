//! The page about a command.

use super::{Card, CardLine, Cell, Column, LEGEND, Page, Part, Section};
use crate::command::text::{RISK, WORTH, dropped, ended, group_name, totals};
use crate::command::{
    BuildSteps, CommandReport, Dropped, NotCovered, Slowest, StepWaits, SyncGroup, Waits,
};
use crate::finding::NO_UNDO;
use crate::units::{at_least, seconds, whole};
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
        let mut triggers = self.triggers.clone();
        triggers.sort_by_key(|trigger| std::cmp::Reverse(trigger.micros));
        let triggers = Part::table(
            "Triggers of packages",
            &triggers,
            [
                (Column::text("package"), &|it| Cell::text(&*it.package)),
                (Column::number("runs"), &|it| Cell::count(it.runs)),
                (Column::sorted("at least"), &|it| {
                    Cell::number(at_least(it.seconds()), it.seconds())
                }),
            ],
        );
        let emulated = self.emulated.iter().map(|it| {
            let (share, _) = it.share();
            (it.by.as_str(), format!("{:.0} % of the work", 100.0 * share))
        });
        Section::new("Programs", [triggers, Part::facts(emulated)])
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
    let if_seen =
        |step: &StepWaits, cell: Cell| if step.unseen.is_none() { cell } else { Cell::text("") };
    let mut steps: Vec<_> = build.steps.iter().collect();
    // Stable: of equal waits, the earlier step comes first.
    steps.sort_by(|one, other| other.waits.total_cmp(&one.waits));
    let waited = steps.iter().filter(|step| step.calls > 0);
    let bars = waited.map(|step| {
        let name = format!("{}: {}", step.number, step.words());
        bar(name.into(), step.calls, step.waits)
    });
    let each = Part::table(
        "Each step",
        &steps,
        [
            (Column::number("step"), &|it| {
                Cell::number(it.number.to_string(), f64::from(it.number))
            }),
            (Column::text("command"), &|it| Cell::text(it.words())),
            (Column::number("syncs"), &|it| if_seen(it, Cell::count(it.calls))),
            (Column::sorted("waits"), &|it| if_seen(it, Cell::seconds(it.waits))),
            (Column::number("time"), &|it| Cell::seconds(it.seconds)),
            (Column::text("engine"), &|it| Cell::text(&*it.engine)),
            (Column::text("image"), &|it| Cell::text(it.image.as_deref().unwrap_or_default())),
            (Column::text("not seen"), &|it| Cell::text(it.unseen.as_deref().unwrap_or_default())),
        ],
    );
    let first = [
        Some(Part::Line("Steps of all builds in this time. None was held.".into())),
        Part::chart("Waits by step", bars),
        each,
    ];
    let not_covered = not_covered(&build.not_covered, "held step", ["does not wait", "waits"]);
    let not_seen = Part::facts([("not seen", build.not_seen.to_owned())]);
    first.into_iter().chain(groups(&build.waits)).chain([not_covered, not_seen]).collect()
}

/// Returns what has no time. The last column, `held`, has the first of `words` for a call that a
/// hold takes away, and the second for others.
fn not_covered(kinds: &[NotCovered], held: &'static str, words: [&'static str; 2]) -> Option<Part> {
    Part::table(
        "Calls without a time",
        kinds,
        [
            (Column::text("kind of sync"), &|it| Cell::text(it.what)),
            (Column::text("call"), &|it| Cell::text(&*it.call)),
            (Column::number("calls"), &|it| Cell::count(it.calls)),
            (Column::text("first program"), &|it| Cell::text(&*it.program)),
            (Column::text("first file"), &|it| Cell::text(it.file.as_deref().unwrap_or_default())),
            (Column::text(held), &|it| Cell::text(words[usize::from(!it.is_held)])),
        ],
    )
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
    Part::table(
        title,
        groups,
        [
            (Column::text(name), &|it| Cell::text(group_name(it))),
            (Column::number("syncs"), &|it| Cell::count(it.calls)),
            (Column::sorted("waits"), &|it| Cell::seconds(it.seconds)),
            (Column::number("median"), &|it| Cell::seconds(it.median)),
            (Column::number("p99"), &|it| Cell::seconds(it.p99)),
        ],
    )
}

fn slowest(slowest: &[Slowest]) -> Option<Part> {
    let unknown = || Cell::number(String::new(), -1.0);
    Part::table(
        "The longest waits",
        slowest,
        [
            (Column::text("file"), &|it| Cell::text(it.file.as_deref().unwrap_or("(no file)"))),
            (Column::text("call"), &|it| Cell::text(&*it.call)),
            (Column::sorted("wait"), &|it| Cell::seconds(it.seconds)),
            (Column::number("written"), &|it| it.bytes.map_or_else(unknown, Cell::bytes)),
            (Column::text("program, and what started it"), &|it| Cell::text(it.line())),
            (Column::number("pid"), &|it| {
                Cell::number(it.process.to_string(), f64::from(it.process))
            }),
        ],
    )
}
