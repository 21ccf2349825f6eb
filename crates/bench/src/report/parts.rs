//! The parts of samples, side by side.

use super::VariantResult;
use super::format::{quantity, shown_p};
use super::table::{Align, Table};
use crate::runner::{Measured, Sample};
use crate::statistics::{Comparison, Summary, compare, median, summarize};
use serde::{Deserialize, Serialize};

/// Nanoseconds per millisecond.
const MS: f64 = 1e6;

/// The statistics of one part of a variant's samples, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartResult {
    /// The part's name.
    pub name: String,
    /// Summary of its times.
    pub summary: Option<Summary>,
    /// Comparison with the same part of the baseline; `None` for a baseline, or if the
    /// baseline lacks the part.
    pub comparison: Option<Comparison>,
}

/// Returns the parts of a variant whose commands are timed separately; otherwise none.
pub(super) fn evaluate(one: &Measured, baseline: Option<&Measured>, seed: u64) -> Vec<PartResult> {
    if one.variant.parts.is_empty() {
        return Vec::new();
    }
    let evaluated = |name: &str| {
        let own = times(&one.samples, name);
        let other = baseline.map(|baseline| times(&baseline.samples, name));
        PartResult {
            name: name.to_owned(),
            summary: summarize(&own),
            comparison: other.and_then(|other| compare(&own, &other, seed)),
        }
    };
    names(&one.samples).into_iter().map(evaluated).collect()
}

/// Returns the text: a table of medians for each group of variants, and a table for each part
/// with statistics; empty if no sample has parts.
pub(super) fn text(results: &[VariantResult]) -> String {
    let mut text = String::new();
    for group in results.chunk_by(|a, b| group(a) == group(b)) {
        if let Some(table) = medians(group) {
            text.push_str(&format!("\nparts, medians\n{}", table.render()));
        }
    }
    for group in results.chunk_by(|a, b| group(a) == group(b)) {
        text.push_str(&part_tables(group));
    }
    text
}

/// Returns the group of a variant: the word before a slash in its name.
fn group(result: &VariantResult) -> Option<&str> {
    result.measured.variant.name.split_once('/').map(|(group, _)| group)
}

/// Returns a table with a row per variant and a column per part.
fn medians(results: &[VariantResult]) -> Option<Table> {
    let names = all_names(results);
    if names.is_empty() {
        return None;
    }
    let columns = names.iter().map(|name| (*name, Align::Right));
    let mut table = Table::new([("variant", Align::Left)].into_iter().chain(columns));
    for result in results {
        let middle = |name: &str| {
            let middle = median(&times(&result.measured.samples, name));
            middle.map_or_else(|| "-".to_owned(), |ms| quantity(ms * MS))
        };
        let name = result.measured.variant.name.clone();
        table.row(std::iter::once(name).chain(names.iter().map(|name| middle(name))).collect());
    }
    Some(table)
}

/// Returns one table per part, with spread and ratio.
fn part_tables(results: &[VariantResult]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for part in results.iter().flat_map(|result| &result.parts) {
        if !names.contains(&part.name.as_str()) {
            names.push(&part.name);
        }
    }
    let table = |name: &str| {
        let columns = [
            ("median", Align::Right),
            ("min .. max", Align::Right),
            ("ratio", Align::Right),
            ("95 %", Align::Left),
            ("p", Align::Right),
            ("against", Align::Left),
        ];
        let mut table = Table::new([(name, Align::Left)].into_iter().chain(columns));
        for result in results {
            if let Some(part) = result.parts.iter().find(|part| part.name == name) {
                table.row(cells(result, part));
            }
        }
        format!("\n{}", table.render())
    };
    names.into_iter().map(table).collect()
}

fn cells(result: &VariantResult, part: &PartResult) -> Vec<String> {
    let variant = &result.measured.variant;
    let mut cells = vec![variant.name.clone()];
    match &part.summary {
        None => cells.extend(["-", "-"].map(str::to_owned)),
        Some(s) => cells.extend([
            quantity(s.median * MS),
            format!("{} .. {}", quantity(s.min * MS), quantity(s.max * MS)),
        ]),
    }
    match &part.comparison {
        None if variant.is_baseline() => cells.extend(["1", "", ""].map(str::to_owned)),
        None => cells.extend(["-", "", ""].map(str::to_owned)),
        Some(c) => cells.extend([
            format!("{:.3}", c.ratio),
            format!("[{:.3}, {:.3}]", c.ratio_interval.low, c.ratio_interval.high),
            shown_p(c.p_value),
        ]),
    }
    cells.push(match &part.comparison {
        Some(c) => format!("{}: {}", variant.against, c.verdict),
        None if variant.is_baseline() => "baseline".to_owned(),
        None => format!("{} has none", variant.against),
    });
    cells
}

fn all_names(results: &[VariantResult]) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for name in results.iter().flat_map(|result| names(&result.measured.samples)) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Returns the names of the parts of samples, in order of appearance.
fn names(samples: &[Sample]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for part in samples.iter().flat_map(|sample| &sample.parts) {
        if !names.contains(&part.name.as_str()) {
            names.push(&part.name);
        }
    }
    names
}

fn times(samples: &[Sample], name: &str) -> Vec<f64> {
    let parts = samples.iter().flat_map(|sample| &sample.parts);
    parts.filter(|part| part.name == name).map(|part| part.ms).collect()
}
