//! The differences that are meant, from `differences.txt`.

use std::collections::BTreeSet;

const TABLE: &str = include_str!("differences.txt");

/// What the table says of the results of a test that differ.
pub struct Judged {
    /// How many it names.
    pub meant: usize,
    /// Those that it does not name.
    pub others: Vec<String>,
    /// Those that it names and that are the same.
    pub absent: Vec<String>,
}

/// Judges the results that differ of the test `name` of `suite` in the mode `mode`.
pub fn judge(suite: &str, name: &str, mode: &str, differing: &BTreeSet<String>) -> Judged {
    let listed: BTreeSet<_> = lines()
        .filter(|line| line.test == format!("{suite} {name}") && line.modes.contains(mode))
        .map(|line| line.result.to_owned())
        .collect();
    Judged {
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

/// The lines of the table: test, modes, result and reason, between bars.
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
