//! The expected differences, from `differences.txt`.

use std::collections::BTreeSet;

const TABLE: &str = include_str!("differences.txt");

/// The differing results of a test, compared with the table.
pub struct Compared {
    /// How many are in the table.
    pub meant: usize,
    /// Results that are not in the table.
    pub others: Vec<String>,
    /// Results that are in the table and do not differ.
    pub absent: Vec<String>,
}

/// Compares with the table the differing results of the test `name` of `suite` in the mode
/// `mode`.
pub fn compare(suite: &str, name: &str, mode: &str, differing: &BTreeSet<String>) -> Compared {
    let listed: BTreeSet<_> = lines()
        .filter(|line| line.test == format!("{suite} {name}") && line.modes.contains(mode))
        .map(|line| line.result.to_owned())
        .collect();
    Compared {
        meant: differing.intersection(&listed).count(),
        others: differing.difference(&listed).cloned().collect(),
        absent: listed.difference(differing).cloned().collect(),
    }
}

struct Line {
    test: String,
    modes: &'static str,
    result: &'static str,
}

/// Returns the lines of the table: test, modes, result and reason, between bars.
fn lines() -> impl Iterator<Item = Line> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let fields: Vec<_> = line.split('|').map(str::trim).collect();
        let [test, modes, result, reason] = fields[..] else {
            panic!("differences.txt: {line}: want test | modes | result | reason");
        };
        assert!(!reason.is_empty(), "differences.txt: {line}: no reason");
        Line { test: test.to_owned(), modes, result }
    })
}
