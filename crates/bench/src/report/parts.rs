//! The parts of samples, side by side.

use super::format::{quantity, shown_p};
use super::results::{PartResult, VariantResult, names, times, unique};
use super::table::{Align, Table};
use crate::statistics::median;

/// Nanoseconds per millisecond.
const MS: f64 = 1e6;

/// Returns a table of medians for each group of variants, and a table for each part with
/// statistics. The text is empty if no sample has parts.
pub(super) fn text(results: &[VariantResult]) -> String {
    let mut text = String::new();
    for group in results.chunk_by(|a, b| group(a) == group(b)) {
        if let Some(table) = medians(group) {
            text.push_str(&format!("\nparts, medians\n{}", table.render(None)));
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
    let names = names(results.iter().flat_map(|result| &result.measured.samples));
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

/// Returns one table per part, with the spread and the ratio to the baseline.
fn part_tables(results: &[VariantResult]) -> String {
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
        format!("\n{}", table.render(None))
    };
    let parts = results.iter().flat_map(|result| &result.parts);
    unique(parts.map(|part| part.name.as_str())).into_iter().map(table).collect()
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
