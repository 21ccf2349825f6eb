//! The table.

use crate::Result;
use crate::cuts::Findings;
use crate::expected::{Expected, Role, failures};
use crate::mutants::MUTANTS;
use crate::scene::Scene;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// A row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub role: Role,
    pub name: String,
    pub scene: Scene,
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
        let (group, name, scene) = (self.role.group(), &self.name, self.scene.to_string());
        let Findings { cuts, refused, .. } = self.findings;
        write!(f, "{group:8} {name:26} {scene:38} {cuts:5} cuts  {each:4} ms each  ")?;
        write!(f, "{refused:3} refused  {}", self.found())
    }
}

/// Prints the table, its sums and what is not as expected.
pub(crate) fn print(rows: &[Row], allow_missing: bool) {
    for row in rows {
        println!("{row}");
    }
    let cuts: usize = rows.iter().map(|row| row.findings.cuts).sum();
    let kept = rows.iter().filter(|row| row.role.expected() == Expected::Kept);
    let (mut promised, mut broken, mut refused) = (0, 0, 0);
    for row in kept {
        promised += row.findings.cuts;
        broken += row.findings.broken();
        refused += row.findings.refused;
    }
    println!("{cuts} cuts; {promised} of the promise, of which {broken} broken, {refused} refused");
    for mutant in MUTANTS {
        println!("mutant {}: {}", mutant.name, mutant.about);
    }
    for row in rows {
        if let (Some(first), Role::Mutant) = (&row.findings.first, row.role) {
            println!("{}, {}: {first}", row.name, row.scene);
        }
        if let Some(refusal) = &row.findings.refusal {
            println!("{} {}, {}: {refusal}", row.role.group(), row.name, row.scene);
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
