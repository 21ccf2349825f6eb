//! The parts of a sample, beside each other.

use super::Judged;
use super::format::quantity;
use super::table::{Align, Table};
use crate::statistics::median;

/// A row a variant and a column a part, medians; `None` where no sample has parts.
pub(super) fn table(results: &[Judged]) -> Option<Table> {
    let samples = || results.iter().flat_map(|result| &result.measured.samples);
    let mut names: Vec<&str> = Vec::new();
    for part in samples().flat_map(|sample| &sample.parts) {
        if !names.contains(&part.name.as_str()) {
            names.push(&part.name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let columns = names.iter().map(|name| (*name, Align::Right));
    let mut table = Table::new([("variant", Align::Left)].into_iter().chain(columns));
    for result in results {
        let middle = |name: &str| {
            let parts = result.measured.samples.iter().flat_map(|sample| &sample.parts);
            let values = parts.filter(|part| part.name == name).map(|part| part.ms);
            let middle = median(&values.collect::<Vec<_>>());
            middle.map_or_else(|| "-".to_owned(), |ms| quantity(ms * 1e6))
        };
        let name = result.measured.variant.name.clone();
        table.row(std::iter::once(name).chain(names.iter().map(|name| middle(name))).collect());
    }
    Some(table)
}
