//! The table.

use crate::Result;
use crate::cuts::Findings;
use crate::expected::Expected;
use crate::mutants::MUTANTS;
use crate::scene::Scene;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// A row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub group: &'static str,
    pub name: String,
    pub scene: Scene,
    pub expected: Expected,
    #[serde(flatten)]
    pub findings: Findings,
}

impl Row {
    fn found(&self) -> String {
        if let Some(reason) = &self.findings.skipped {
            return format!("SKIPPED: {reason}");
        }
        if self.findings.found.is_empty() {
            return "-".to_owned();
        }
        let found = self.findings.found.iter();
        found.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.findings.millis / self.findings.cuts.max(1) as u64;
        let (group, name, scene) = (self.group, &self.name, self.scene.to_string());
        let (cuts, found) = (self.findings.cuts, self.found());
        write!(f, "{group:8} {name:26} {scene:38} {cuts:5} cuts  {each:4} ms each  {found}")
    }
}

/// Whether every row shows what is expected of it.
pub(crate) fn verdict(rows: &[Row], allow_missing: bool) -> bool {
    failures(rows, allow_missing).is_empty()
}

/// What is not as expected, in words.
fn failures(rows: &[Row], allow_missing: bool) -> Vec<String> {
    let mut failures = Vec::new();
    for row in rows {
        if let Some(reason) = &row.findings.skipped {
            if !allow_missing {
                failures.push(format!("{}, {}: skipped: {reason}", row.name, row.scene));
            }
            continue;
        }
        let broken = row.findings.broken() > 0;
        match row.expected {
            Expected::Kept if broken => failures.push(format!(
                "{} {}, {}: {}",
                row.group,
                row.name,
                row.scene,
                row.findings.first.as_deref().unwrap_or_default()
            )),
            Expected::Broken if !broken => {
                failures.push(format!("{}, {}: nothing was seen", row.name, row.scene));
            }
            _ => {}
        }
    }
    let tried = rows.iter().filter(|row| row.expected == Expected::BrokenSomewhere);
    let names: BTreeSet<&str> = tried.clone().map(|row| row.name.as_str()).collect();
    for name in names {
        if !tried.clone().any(|row| row.name == name && row.findings.broken() > 0) {
            failures.push(format!("mutant {name}: not caught anywhere"));
        }
    }
    failures
}

/// Prints the table, its sums and what is not as expected.
pub(crate) fn print(rows: &[Row], allow_missing: bool) {
    for row in rows {
        println!("{row}");
    }
    let cuts: usize = rows.iter().map(|row| row.findings.cuts).sum();
    let kept = rows.iter().filter(|row| row.expected == Expected::Kept);
    let (mut promised, mut broken) = (0, 0);
    for row in kept {
        promised += row.findings.cuts;
        broken += row.findings.broken();
    }
    println!("{cuts} cuts; {promised} of the promise, of which {broken} broken");
    for mutant in MUTANTS {
        println!("mutant {}: {}", mutant.name, mutant.about);
    }
    for row in rows {
        if let (Some(first), "mutant") = (&row.findings.first, row.group) {
            println!("{}, {}: {first}", row.name, row.scene);
        }
    }
    for failure in failures(rows, allow_missing) {
        println!("NOT AS EXPECTED: {failure}");
    }
}

/// Writes every row as JSON.
pub(crate) fn write_json(path: &Path, rows: &[Row]) -> Result<()> {
    Ok(std::fs::write(path, serde_json::to_vec_pretty(rows)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{Disk, MarkerPlace, Mode};

    fn row(expected: Expected, findings: Findings) -> Row {
        let scene = Scene { disk: Disk::Ext4, marker: MarkerPlace::Same, mode: Mode::Supervised };
        Row { group: "promise", name: "row".to_owned(), scene, expected, findings }
    }

    #[test]
    fn a_row_that_was_skipped_passes_only_where_that_was_allowed() {
        for expected in [Expected::Kept, Expected::Shown] {
            let skipped = Some("it is not installed".to_owned());
            let rows = [row(expected, Findings { skipped, ..Findings::default() })];
            assert!(!verdict(&rows, false));
            assert!(verdict(&rows, true));
            assert!(rows[0].to_string().contains("SKIPPED: it is not installed"));
        }
    }

    #[test]
    fn a_broken_promise_does_not_pass_whatever_may_be_missing() {
        let broken = || Findings {
            cuts: 9,
            found: [("lost", 1)].into_iter().collect(),
            ..Findings::default()
        };
        assert!(!verdict(&[row(Expected::Kept, broken())], true));
        assert!(verdict(&[row(Expected::Shown, broken())], false));
        assert!(verdict(&[row(Expected::Broken, broken())], false));
        assert!(!verdict(&[row(Expected::Broken, Findings::default())], false));
    }
}
