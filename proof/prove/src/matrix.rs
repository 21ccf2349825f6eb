//! Makes all rows.

mod tasks;

use crate::background_load::LoadKind;
use crate::campaign::{Campaign, Findings};
use crate::config::Scope;
use crate::cuts::cut;
use crate::expected::passes;
use crate::recording::record;
use crate::report::{print, write_json};
use crate::row::{Expected, Job, Role, Row, make_rows};
use crate::{ProveArguments, Result};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tasks::{Task, tasks};

/// Number of rigs that work in parallel: one records or mounts while another waits for its
/// disk.
const WORKERS: usize = 8;
/// Maximum number of cuts of one recorded run. After that a new run is recorded, which goes
/// differently.
const PER_RECORDING: usize = 120;

/// Makes every row; returns whether each shows what is expected.
pub(crate) fn prove(arguments: &ProveArguments) -> Result<bool> {
    let tasks = tasks(arguments);
    // The longest rows first, so that none is alone at the end.
    let mut jobs = crate::tree::jobs(arguments);
    jobs.extend(crate::hold::jobs(arguments));
    jobs.extend(crate::packages::jobs(arguments));
    jobs.extend(tasks.iter().map(Task::job));
    let is_wanted = |job: &Job<'_>| arguments.wants(job.role.group(), &job.name, job.config);
    jobs.retain(is_wanted);
    if arguments.decisive {
        jobs.retain(|job| job.role.expected() != Expected::Shown);
        jobs = spread_mutants(jobs);
    }
    // A run that commits every mounted file system also waits for the disks of concurrent rows.
    let (mut alone, parallel): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|job| job.config.scope == Scope::All);
    // These rows fail, freeze or unmount disks. A sync(2) of a concurrent row would write their
    // data too early.
    alone.extend(crate::errors::jobs(arguments).into_iter().filter(is_wanted));
    alone.extend(crate::reach::jobs(arguments).into_iter().filter(is_wanted));
    alone.extend(crate::step::jobs(arguments).into_iter().filter(is_wanted));
    let mut rows = run_jobs(&parallel, arguments, WORKERS);
    rows.extend(run_jobs(&alone, arguments, 1));
    if rows.is_empty() {
        return Err("no row has such a name".into());
    }
    print(&rows, arguments.skipped());
    if let Some(path) = &arguments.json {
        write_json(path, &rows)?;
    }
    Ok(passes(&rows, arguments.skipped()))
}

/// Sorts the rows: all promises and the first row of each mutant, then the second rows, and so on.
/// A row is skipped if an earlier row has caught its mutant by then. The order of the first rows
/// stays: a mutant of a hold is caught late, and must not be alone at the end.
fn spread_mutants(jobs: Vec<Job<'_>>) -> Vec<Job<'_>> {
    let mut rows_before: BTreeMap<String, usize> = BTreeMap::new();
    let mut numbered = Vec::new();
    for job in jobs {
        let rows = rows_before.entry(job.name.clone()).or_default();
        let number = *rows;
        *rows += usize::from(is_mutant(job.role));
        numbered.push((number, job));
    }
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, job)| job).collect()
}

/// Whether one row of this name has to catch the mutant.
fn is_mutant(role: Role) -> bool {
    role.expected() == Expected::BrokenSomewhere
}

/// Whether a row has caught the mutant of `job`.
fn is_caught(job: &Job<'_>, rows: &[(usize, Row)]) -> bool {
    let caught = |row: &Row| row.name == job.name && row.findings.broken() > 0;
    is_mutant(job.role) && rows.iter().any(|(_, row)| caught(row))
}

fn run_jobs(jobs: &[Job<'_>], arguments: &ProveArguments, workers: usize) -> Vec<Row> {
    let is_due =
        |job: &Job<'_>, rows: &[(usize, Row)]| !(arguments.decisive && is_caught(job, rows));
    let make = |index: usize, job: &Job<'_>| {
        let row = job.row(arguments.seed.wrapping_add(index as u64));
        row.print_progress();
        row
    };
    make_rows(jobs, workers, is_due, make).into_iter().map(|(_, row)| row).collect()
}

/// Locked while a big recording is in memory.
static BIG: Mutex<()> = Mutex::new(());

impl Task {
    fn job(&self) -> Job<'_> {
        Job::new(self.role, &*self.name, self.config, |seed| self.make(seed))
    }

    /// Records and cuts until the row has its cuts; a mutant's row ends when the mutant is
    /// caught.
    fn make(&self, seed: u64) -> Result<Findings> {
        let missing = self.work.missing().or_else(|| self.tool.missing());
        if missing.is_some() {
            return Ok(Findings { skipped: missing, ..Findings::default() });
        }
        let _alone = self.work.is_big().then(|| BIG.lock());
        // Every part is run and cut, however few cuts are requested.
        let recordings = self.work.recordings().max(self.cuts.div_ceil(PER_RECORDING));
        let campaign = Campaign::new(&self.tool, self.cuts.max(recordings), seed);
        campaign.record(recordings, |round, part| {
            let work = self.work.part(round);
            cut(&record(self.config, work, &self.tool, LoadKind::for_round(3 * round))?, part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CommandLine;
    use crate::config::{DiskKind, MarkerPlace, RunConfig};
    use crate::expected::{Skipped, failures};
    use clap::Parser;

    fn job(role: Role, name: &str, lost: usize) -> Job<'static> {
        let found = (lost > 0).then_some(("lost", lost)).into_iter().collect();
        let findings = Findings { cuts: 1, found, ..Findings::default() };
        let config = RunConfig::supervised(DiskKind::Ext4, MarkerPlace::Same);
        Job::new(role, name, config, move |_| Ok(findings.clone()))
    }

    fn made(words: &[&str]) -> Vec<String> {
        let words = ["prove", "--synconce", "/program"].iter().chain(words);
        let arguments = CommandLine::parse_from(words).arguments.unwrap();
        let jobs = spread_mutants(vec![
            job(Role::Mutant, "missed", 0),
            job(Role::Mutant, "missed", 0),
            job(Role::Promise, "promise", 0),
            job(Role::Mutant, "caught", 1),
            job(Role::Mutant, "caught", 1),
            job(Role::Promise, "promise", 0),
        ]);
        run_jobs(&jobs, &arguments, 1).into_iter().map(|row| row.name).collect()
    }

    #[test]
    fn an_error_is_the_failure_of_its_row_and_the_other_rows_are_made() {
        let words = ["prove", "--synconce", "/program"];
        let arguments = CommandLine::parse_from(words).arguments.unwrap();
        for role in [Role::Promise, Role::Control, Role::Mutant, Role::Rival] {
            let make = Box::new(|_| Err("the disk is busy".into()));
            let failing = Job { make, ..job(role, "failing", 0) };
            let panicking = Job { make: Box::new(|_| panic!()), ..job(role, "panicking", 0) };
            let last = job(Role::Promise, "last", 0);
            let rows = run_jobs(&[failing, panicking, last], &arguments, 1);
            assert_eq!(rows[2].name, "last");
            let failures = failures(&rows, Skipped::Passes);
            for (at, name) in ["failing", "panicking"].into_iter().enumerate() {
                assert!(rows[at].to_string().ends_with("ERROR"), "{}", rows[at]);
                let named = format!("{} {name}, {}: error: ", role.group(), rows[at].config);
                assert!(failures[at].starts_with(&named), "{}", failures[at]);
            }
        }
    }

    #[test]
    fn a_mutant_that_is_caught_has_no_further_row_where_only_the_result_counts() {
        let first = ["missed", "promise", "caught", "promise"];
        assert_eq!(made(&["--decisive"]), [&first[..], &["missed"]].concat());
        assert_eq!(made(&[]), [&first[..], &["missed", "caught"]].concat());
    }
}
