//! Prints the results of a proof, or writes them as JSON.

use crate::Result;
use crate::expected::{Skipped, failures};
use crate::mutants::MUTANTS;
use crate::row::{Expected, Role, Row};
use std::collections::BTreeMap;
use std::path::Path;

/// Prints the rows, their sums, the mutants, the first findings, and each result that is not as
/// expected.
pub(crate) fn print(rows: &[Row], skipped: Skipped) {
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
    let about = MUTANTS.iter().map(|mutant| (mutant.name, mutant.about));
    let about = about.chain(crate::tree::MUTANTS.iter().map(|mutant| (mutant.name, mutant.about)));
    let about = about.chain(crate::hold::MUTANTS.iter().map(|mutant| (mutant.name, mutant.about)));
    let about = about.chain(crate::reach::MUTANTS.iter().map(|(name, about, _)| (*name, *about)));
    let about = about.chain(crate::step::MUTANTS);
    // Several campaigns can have the same mutant: it is described once.
    let about: BTreeMap<_, _> = about.collect();
    for (name, about) in about.iter().filter(|(name, _)| rows.iter().any(|row| row.name == **name))
    {
        println!("mutant {name}: {about}");
    }
    for row in rows {
        if let (Some(first), Role::Mutant) = (&row.findings.first, row.role) {
            println!("{}, {}: {first}", row.name, row.config);
        }
        if let Some(refusal) = &row.findings.refusal {
            println!("{} {}, {}: {refusal}", row.role.group(), row.name, row.config);
        }
    }
    let failures = failures(rows, skipped);
    for failure in &failures {
        println!("NOT AS EXPECTED: {failure}");
    }
    if failures.is_empty() {
        println!("all of {} rows are as expected", rows.len());
    }
}

pub(crate) fn write_json(path: &Path, rows: &[Row]) -> Result<()> {
    Ok(std::fs::write(path, serde_json::to_vec_pretty(rows)?)?)
}
