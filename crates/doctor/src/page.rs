//! A report as a page: one HTML file that loads nothing. Pure: values in, text out.
//!
//! Names, paths and words of commands may come from another user. Each is a [`Text`], in which
//! control characters are escaped, and the template escapes markup. The policy of the page
//! (Content-Security-Policy) allows its own style and script only, by a number that is used once.

mod command;
mod context;
mod place;

use crate::finding::{Action, Finding};
use crate::text::price;
use crate::units::{bytes, seconds, whole};
use askama::Template;
use synconce_chart::{Bar, BarChart, Text};

/// A table has at most so many rows, so that a page opens at once.
const ROWS: usize = 50;
/// A chart has at most so many bars.
const BARS: usize = 10;
/// Explains the columns `median` and `p99` in plain words.
const LEGEND: &str = "Median: half of the syncs took at most this time. \
                      p99: 99 of 100 syncs took at most this time.";

/// A page.
#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    title: Text,
    verdict: Text,
    cards: Vec<Card>,
    sections: Vec<Section>,
    /// What made the page, and when.
    made: Text,
    nonce: String,
    style: &'static str,
    script: &'static str,
}

/// A finding, or what else can be done.
struct Card {
    name: Text,
    price: Text,
    lines: Vec<CardLine>,
}

struct CardLine {
    label: &'static str,
    text: Text,
    is_command: bool,
}

struct Section {
    title: &'static str,
    parts: Vec<Part>,
}

enum Part {
    Line(Text),
    /// Names and what is said about each.
    Facts(Vec<(Text, Text)>),
    Chart(BarChart),
    Table(Table),
}

struct Table {
    title: &'static str,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// What the rows leave out.
    rest: Text,
}

struct Column {
    name: &'static str,
    is_number: bool,
    /// Whether the rows are sorted by this column, the largest first.
    is_sorted: bool,
}

struct Cell {
    text: Text,
    /// The value of a number, which the text rounds.
    number: Option<f64>,
}

/// Returns the cell of a row.
type CellOf<'a, T> = &'a dyn Fn(&T) -> Cell;

impl Page {
    /// Returns the text of a page.
    fn text(
        title: impl Into<Text>,
        verdict: &str,
        cards: Vec<Card>,
        sections: impl IntoIterator<Item = Section>,
        made: &str,
    ) -> String {
        let page = Self {
            title: title.into(),
            verdict: verdict.into(),
            cards,
            sections: sections.into_iter().filter(|section| !section.parts.is_empty()).collect(),
            made: made.into(),
            nonce: format!("{:032x}", fastrand::u128(..)),
            style: include_str!("../templates/page.css"),
            script: include_str!("../templates/page.js"),
        };
        // The template calls nothing that fails, and a write to a string cannot fail.
        page.render().unwrap_or_default()
    }
}

impl Section {
    /// Returns a section with those of `parts` that there are.
    fn new(title: &'static str, parts: impl IntoIterator<Item = Option<Part>>) -> Self {
        Self { title, parts: parts.into_iter().flatten().collect() }
    }
}

impl Part {
    fn facts<N: Into<Text>>(facts: impl IntoIterator<Item = (N, String)>) -> Option<Self> {
        let facts = facts.into_iter().map(|(name, words)| (name.into(), words.into()));
        let facts: Vec<_> = facts.collect();
        (!facts.is_empty()).then_some(Self::Facts(facts))
    }

    /// Returns a chart of the first bars. One bar alone shows nothing.
    fn chart(title: &str, bars: impl IntoIterator<Item = Bar>) -> Option<Self> {
        let bars: Vec<_> = bars.into_iter().take(BARS).collect();
        let chart = BarChart { title: title.into(), heads: None, bars };
        (chart.bars.len() > 1).then_some(Self::Chart(chart))
    }

    /// Returns a table of the first of `all`. Each column has a head and the cell of a row. The
    /// columns in which no row has anything are left out.
    fn table<T, const N: usize>(
        title: &'static str,
        all: &[T],
        columns: [(Column, CellOf<'_, T>); N],
    ) -> Option<Self> {
        let rest = match all.len().saturating_sub(ROWS) {
            0 => Text::default(),
            count => format!("{count} more are not shown here: --json has all.").into(),
        };
        let shown = &all[..all.len().min(ROWS)];
        let mut table = Table { title, columns: Vec::new(), rows: Vec::new(), rest };
        table.rows.resize_with(shown.len(), Vec::new);
        for (column, cell) in columns {
            let cells: Vec<_> = shown.iter().map(cell).collect();
            if cells.iter().any(|cell| !cell.text.is_empty()) {
                table.columns.push(column);
                table.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
            }
        }
        (!all.is_empty()).then_some(Self::Table(table))
    }
}

impl Column {
    fn text(name: &'static str) -> Self {
        Self { name, is_number: false, is_sorted: false }
    }

    fn number(name: &'static str) -> Self {
        Self { name, is_number: true, is_sorted: false }
    }

    fn sorted(name: &'static str) -> Self {
        Self { name, is_number: true, is_sorted: true }
    }
}

impl Cell {
    fn text(text: impl Into<Text>) -> Self {
        Self { text: text.into(), number: None }
    }

    fn number(shown: String, number: f64) -> Self {
        Self { text: shown.into(), number: Some(number) }
    }

    fn count(count: u64) -> Self {
        Self::number(whole(count as f64), count as f64)
    }

    fn bytes(count: u64) -> Self {
        Self::number(bytes(count as f64), count as f64)
    }

    fn seconds(value: f64) -> Self {
        Self::number(seconds(value), value)
    }
}

impl Card {
    fn from_finding(finding: &Finding) -> Self {
        let Finding { name, cause, evidence, remedy, undo, risk, .. } = finding;
        let lines = vec![
            CardLine::prose("cause", cause),
            CardLine::prose("evidence", evidence),
            CardLine::action("do", remedy),
            CardLine::action("undo", undo),
            CardLine::prose("risk", risk),
        ];
        let price = price(finding).unwrap_or_default();
        Self { name: (*name).into(), price: price.into(), lines }
    }
}

impl CardLine {
    /// Returns a line of words, which may have commands in them.
    fn prose(label: &'static str, text: &str) -> Self {
        Self { label, text: text.into(), is_command: false }
    }

    fn action(label: &'static str, action: &Action) -> Self {
        match action {
            Action::Command(line) => Self::command(label, line),
            Action::Words(text) => Self::prose(label, text),
        }
    }

    /// Returns a line that can be typed as it is.
    fn command(label: &'static str, text: &str) -> Self {
        Self { label, text: text.into(), is_command: true }
    }
}

#[cfg(test)]
mod tests;
