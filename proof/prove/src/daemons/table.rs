//! The table of all rows, and whether each is as expected.

use super::cuts::{CutTally, EACH_BUILD};
use super::engine::{DatabaseSyncs, StepRootKind};
use super::judge::{CACHE, STARTS, STRAYS, has_to_fail};
use crate::Result;
use std::fmt;

/// A row of the table.
pub(super) struct DaemonRow {
    pub name: String,
    pub way: DatabaseSyncs,
    pub tally: CutTally,
    /// The defect of the proof that ended the row.
    error: Option<String>,
}

impl DaemonRow {
    /// Returns the row of these cuts.
    pub(super) fn new(name: String, way: DatabaseSyncs, made: Result<CutTally>) -> Self {
        match made {
            Ok(tally) => Self { name, way, tally, error: None },
            Err(error) => {
                Self { name, way, tally: CutTally::default(), error: Some(error.to_string()) }
            }
        }
    }
}

impl fmt::Display for DaemonRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CutTally { cuts, kept, wiped, broken, silent, kinds, .. } = &self.tally;
        let name = &self.name;
        if let Some(error) = &self.error {
            return write!(f, "{name:58} ERROR: {error}");
        }
        write!(f, "{name:58} {cuts:4} cuts {kept:4} ok {wiped:4} wiped and said ")?;
        write!(f, "{broken:4} broken {silent:4} silent")?;
        let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        if kinds.is_empty() { Ok(()) } else { write!(f, "  ({})", kinds.join(", ")) }
    }
}

/// Prints the table and what is not as expected; returns whether all is.
pub(super) fn print(rows: &[DaemonRow]) -> bool {
    for row in rows {
        println!("{row}");
    }
    for row in rows {
        for first in row.tally.first.values() {
            println!("{}: {first}", row.name);
        }
    }
    let wrong = unexpected(rows);
    wrong.iter().for_each(|wrong| println!("NOT AS EXPECTED: {wrong}"));
    if wrong.is_empty() {
        println!("all of {} rows are as expected", rows.len());
    }
    wrong.is_empty()
}

/// Returns what is not as expected: an error; a finding in a row of the tool; a control that has to
/// fail, and fails on no file system; a mutant that is not caught on one of the file systems,
/// although each build was cut.
fn unexpected(rows: &[DaemonRow]) -> Vec<String> {
    let findings = |row: &DaemonRow| match row.way {
        // dockerd syncs neither its list of images nor new directories of layers nor `cache.db`:
        // with runc alone, too.
        DatabaseSyncs::Steps(_) => {
            let of_dockerd =
                [STRAYS, STARTS, CACHE].map(|kind| row.tally.kinds.get(kind).unwrap_or(&0));
            row.tally.broken - of_dockerd.into_iter().sum::<usize>()
        }
        _ => row.tally.broken + row.tally.silent,
    };
    let ours = rows.iter().filter(|row| row.way.is_ours() && findings(row) > 0);
    let mut wrong: Vec<_> = ours.map(|row| format!("{} has findings", row.name)).collect();
    wrong.extend(rows.iter().filter(|row| row.error.is_some()).map(ToString::to_string));
    for way in
        [DatabaseSyncs::Plain, DatabaseSyncs::NoSync, DatabaseSyncs::Steps(StepRootKind::Unsynced)]
            .into_iter()
            .filter(|way| has_to_fail(*way))
    {
        let made = |row: &&DaemonRow| row.way == way && row.error.is_none();
        let controls: Vec<_> = rows.iter().filter(made).collect();
        let missed: Vec<_> = controls.iter().filter(|row| findings(row) == 0).collect();
        let never = |name: &str| format!("the control {name} never fails");
        if !controls.is_empty() && missed.len() == controls.len() {
            wrong.push(never(way.name()));
        } else if let DatabaseSyncs::Steps(_) = way {
            // Not each build of the mutant loses a layer on each file system.
            let with_each = missed.iter().filter(|row| row.tally.cuts >= EACH_BUILD);
            wrong.extend(with_each.map(|row| never(&row.name)));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{caught, make_rows};

    fn row(way: DatabaseSyncs, broken: usize, silent: usize) -> DaemonRow {
        DaemonRow::new(String::new(), way, Ok(CutTally { broken, silent, ..CutTally::default() }))
    }

    #[test]
    fn an_error_or_a_panic_is_the_failure_of_its_row_alone() {
        let make = |index: usize, way: &DatabaseSyncs| {
            let made = caught(|| match index {
                0 => panic!(),
                1 => Err("the disk is busy".into()),
                _ => Ok(CutTally { broken: 1, ..CutTally::default() }),
            });
            DaemonRow::new(index.to_string(), *way, made)
        };
        let rows = make_rows(&[DatabaseSyncs::Plain; 3], 1, |_, _| true, make);
        let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
        let wrong = unexpected(&rows);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("0 ") && wrong[0].contains("panicked"), "{wrong:?}");
        assert!(wrong[1].ends_with("ERROR: the disk is busy"), "{wrong:?}");
    }

    #[test]
    fn one_finding_of_ours_and_controls_without_any_are_unexpected() {
        assert_eq!(
            unexpected(&[row(DatabaseSyncs::Held, 0, 0), row(DatabaseSyncs::NoSync, 1, 0)]).len(),
            0
        );
        assert_eq!(
            unexpected(&[row(DatabaseSyncs::Plain, 0, 0), row(DatabaseSyncs::Plain, 0, 1)]).len(),
            0
        );
        assert_eq!(unexpected(&[row(DatabaseSyncs::SyncFs, 0, 0)]).len(), 0);
        for wrong in [row(DatabaseSyncs::Held, 1, 0), row(DatabaseSyncs::Held, 0, 1)] {
            assert_eq!(unexpected(&[wrong]).len(), 1);
        }
        assert_eq!(unexpected(&[row(DatabaseSyncs::Plain, 0, 0)]).len(), 1);
    }

    #[test]
    fn defects_of_dockerd_are_no_findings_of_steps() {
        let of_kind = |kind| {
            let mut row = row(DatabaseSyncs::Steps(StepRootKind::Volatile), 1, 0);
            row.tally.kinds.insert(kind, 1);
            row
        };
        for kind in [STRAYS, STARTS, CACHE] {
            assert_eq!(unexpected(&[of_kind(kind)]).len(), 0, "{kind}");
        }
        assert_eq!(unexpected(&[of_kind("use again")]).len(), 1);
    }

    #[test]
    fn a_mutant_of_steps_has_to_fail_on_each_file_system_that_has_a_cut_of_each_build() {
        let mutant = |broken, cuts| {
            let mut row = row(DatabaseSyncs::Steps(StepRootKind::Unsynced), broken, 0);
            row.tally.cuts = cuts;
            row
        };
        assert_eq!(unexpected(&[mutant(1, 12), mutant(2, 12)]).len(), 0);
        assert_eq!(unexpected(&[mutant(1, 12), mutant(0, 12)]).len(), 1);
        assert_eq!(unexpected(&[mutant(1, 12), mutant(0, 3)]).len(), 0);
        assert_eq!(unexpected(&[mutant(0, 3)]).len(), 1);
    }
}
