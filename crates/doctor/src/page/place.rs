//! The page about a place.

use super::{Card, Cell, Column, LEGEND, Page, Part, Section};
use crate::measure::Times;
use crate::report::PlaceReport;
use crate::text::{self, Figure};
use crate::units::micros;
use synconce_chart::Bar;

impl PlaceReport {
    /// Returns the report as a page, which says that it was made by `made`.
    pub fn page(&self, made: &str) -> String {
        let path = self.place.path.display().to_string();
        let title = match &self.engine {
            Some(engine) => format!("{} ({path})", engine.name),
            None => path,
        };
        Page::text(
            title,
            &self.verdict,
            self.findings.iter().map(Card::from_finding).collect(),
            [self.measured(), self.not_measured(), self.looked_at()],
            made,
        )
    }

    fn measured(&self) -> Section {
        let figures = text::figures(&self.measured);
        let waits: Vec<_> = figures.iter().filter_map(WaitRow::from_figure).collect();
        let words = figures.iter().filter_map(|figure| match figure {
            Figure::Words(name, words) => Some((*name, words.clone())),
            Figure::Waits(..) => None,
        });
        let bars = waits.iter().map(|row| row.bar(&waits));
        let time = |value| Cell::number(micros(value), value);
        let table = Part::table(
            "Waits",
            &waits,
            [
                (Column::text("call or write"), &|it| Cell::text(it.name)),
                (Column::number("fastest"), &|it| time(it.times.fastest)),
                (Column::number("median"), &|it| time(it.times.median)),
                (Column::number("p99"), &|it| time(it.times.p99)),
                (Column::number("samples"), &|it| Cell::count(it.times.samples as u64)),
                (Column::text("how it was measured"), &|it| Cell::text(it.what)),
            ],
        );
        Section::new(
            "Measured",
            [
                (!waits.is_empty()).then(|| Part::Line(LEGEND.into())),
                Part::chart("Wait of each sync: median (strong), p99 (faint)", bars),
                table,
                Part::facts(words),
            ],
        )
    }

    fn not_measured(&self) -> Section {
        let missing = self.not_measured.iter().map(|missing| (missing.what, missing.why.clone()));
        let ignored = self.ignored.iter().map(|name| (*name, "left out by --ignore".to_owned()));
        Section::new("Not measured", [Part::facts(missing.chain(ignored))])
    }

    fn looked_at(&self) -> Section {
        let mut facts = vec![
            ("directory", self.place.path.display().to_string()),
            ("file system", text::file_system(&self.place)),
        ];
        facts.extend(text::devices(&self.place));
        let cpus = self.host.cpus;
        facts.push(("machine", format!("Linux {}, {cpus} CPUs", self.host.kernel)));
        facts.extend(text::engine(self));
        facts.extend(text::settings(self));
        Section::new("What was looked at", [Part::facts(facts)])
    }
}

struct WaitRow {
    name: &'static str,
    times: Times,
    what: &'static str,
}

impl WaitRow {
    fn from_figure(figure: &Figure) -> Option<Self> {
        match *figure {
            Figure::Waits(name, times, what) => Some(Self { name, times, what }),
            Figure::Words(..) => None,
        }
    }

    /// Returns the bar of the row among `all`. Copy-ups of files and of directories share a name.
    fn bar(&self, all: &[Self]) -> Bar {
        let Times { median, p99, .. } = self.times;
        let is_shared = all.iter().filter(|row| row.name == self.name).count() > 1;
        let name =
            if is_shared { format!("{}: {}", self.name, self.what) } else { self.name.into() };
        Bar {
            name: name.into(),
            value: median,
            faint: Some(p99),
            note: format!("{} .. {}", micros(median), micros(p99)).into(),
            ..Bar::default()
        }
    }
}
