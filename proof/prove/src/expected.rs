//! Whether each row shows what it has to.

use crate::row::{Expected, Row};
use std::collections::BTreeSet;

/// What a row is whose programs are not installed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skipped {
    Fails,
    Passes,
}

/// Whether every row shows what is expected.
pub(crate) fn passes(rows: &[Row], skipped: Skipped) -> bool {
    failures(rows, skipped).is_empty()
}

/// Describes what is not as expected.
pub(crate) fn failures(rows: &[Row], skipped: Skipped) -> Vec<String> {
    let mut failures = Vec::new();
    for row in rows {
        match &row.findings.skipped {
            Some(reason) if skipped == Skipped::Fails => {
                failures.push(format!("{}, {}: skipped: {reason}", row.name, row.config));
            }
            Some(_) => {}
            None => failures.extend(failure(row)),
        }
    }
    let tried = rows.iter().filter(|row| row.role.expected() == Expected::BrokenSomewhere);
    let names: BTreeSet<&str> = tried.clone().map(|row| row.name.as_str()).collect();
    for name in names {
        if !tried.clone().any(|row| row.name == name && row.findings.broken() > 0) {
            failures.push(format!("mutant {name}: not caught anywhere"));
        }
    }
    failures
}

/// Returns what is wrong with a finished row.
fn failure(row: &Row) -> Option<String> {
    let findings = &row.findings;
    if let Some(error) = &findings.error {
        return Some(format!("{} {}, {}: error: {error}", row.role.group(), row.name, row.config));
    }
    let broken = findings.broken() > 0;
    match row.role.expected() {
        Expected::Kept if broken => {
            let first = findings.first.as_deref().unwrap_or_default();
            Some(format!("{} {}, {}: {first}", row.role.group(), row.name, row.config))
        }
        // A promise that no mounted disk confirmed counts as broken.
        Expected::Kept if findings.refused == findings.cuts => {
            Some(format!("{}, {}: no disk could be mounted", row.name, row.config))
        }
        Expected::Broken if !broken => {
            Some(format!("{}, {}: nothing was seen", row.name, row.config))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::Findings;
    use crate::config::{DiskKind, MarkerPlace, RunConfig};
    use crate::row::Role;

    fn row(role: Role, findings: Findings) -> Row {
        let config = RunConfig::supervised(DiskKind::Ext4, MarkerPlace::Same);
        Row { role, name: "row".to_owned(), config, findings }
    }

    fn broken() -> Findings {
        Findings { cuts: 9, found: [("lost", 1)].into_iter().collect(), ..Findings::default() }
    }

    fn refused(refused: usize) -> Findings {
        Findings { cuts: 9, refused, ..Findings::default() }
    }

    #[test]
    fn a_row_that_was_skipped_passes_only_where_that_was_allowed() {
        for role in [Role::Promise, Role::Rival] {
            let skipped = Some("it is not installed".to_owned());
            let rows = [row(role, Findings { skipped, ..Findings::default() })];
            assert!(!passes(&rows, Skipped::Fails));
            assert!(passes(&rows, Skipped::Passes));
            assert!(rows[0].to_string().contains("SKIPPED: it is not installed"));
        }
    }

    #[test]
    fn a_broken_promise_does_not_pass_even_if_programs_may_be_missing() {
        assert!(!passes(&[row(Role::Promise, broken())], Skipped::Passes));
        assert!(passes(&[row(Role::Rival, broken())], Skipped::Fails));
        assert!(passes(&[row(Role::Control, broken())], Skipped::Fails));
        assert!(!passes(&[row(Role::Control, Findings::default())], Skipped::Fails));
    }

    #[test]
    fn a_mutant_is_caught_in_one_of_its_rows_but_for_a_needless_step() {
        let both = [row(Role::Mutant, Findings::default()), row(Role::Mutant, broken())];
        assert!(passes(&both, Skipped::Fails));
        assert!(!passes(&both[..1], Skipped::Fails));
        assert!(passes(&[row(Role::NeedlessMutant, Findings::default())], Skipped::Fails));
    }

    #[test]
    fn disks_that_are_refused_before_the_return_break_no_promise_and_catch_no_mutant() {
        assert!(passes(&[row(Role::Promise, refused(8))], Skipped::Fails));
        assert!(!passes(&[row(Role::Mutant, refused(8))], Skipped::Fails));
        assert!(!passes(&[row(Role::Control, refused(8))], Skipped::Fails));
        assert!(row(Role::Promise, refused(8)).to_string().contains("8 refused"));
    }

    #[test]
    fn a_promise_without_a_mountable_disk_is_not_kept() {
        assert!(!passes(&[row(Role::Promise, refused(9))], Skipped::Fails));
    }
}
