//! Makes all rows.

mod tasks;

use crate::background_load::LoadKind;
use crate::config::Scope;
use crate::cuts::{Findings, cut};
use crate::expected::{Expected, passes};
use crate::recording::record;
use crate::report::{print, write_json};
use crate::row::{Job, Row};
use crate::tool::Tool;
use crate::{Arguments, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tasks::{Task, tasks};

/// Number of rigs that work in parallel: one records or mounts while another waits for its
/// disk.
const WORKERS: usize = 8;
/// Maximum number of cuts of one recorded run. After that a new run is recorded, which goes
/// differently.
const PER_RECORDING: usize = 120;

/// Makes every row; returns whether each shows what is expected.
pub(crate) fn prove(arguments: &Arguments) -> Result<bool> {
    let tasks = tasks(arguments);
    let mut jobs: Vec<Job<'_>> = tasks.iter().map(Task::job).collect();
    jobs.extend(crate::tree::jobs(arguments));
    jobs.extend(crate::hold::jobs(arguments));
    jobs.extend(crate::packages::jobs(arguments));
    jobs.retain(|job| arguments.wants(job.role.group(), &job.name, job.config));
    // A run that commits every mounted file system also waits for the disks of concurrent rows.
    let (alone, parallel): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|job| job.config.scope == Scope::All);
    let mut rows = run_jobs(&parallel, arguments.seed, WORKERS)?;
    rows.extend(run_jobs(&alone, arguments.seed, 1)?);
    rows.extend(crate::errors::rows(arguments)?);
    rows.extend(crate::reach::rows(arguments)?);
    rows.extend(crate::step::rows(arguments)?);
    if rows.is_empty() {
        return Err("no row has such a name".into());
    }
    print(&rows, arguments.allow_missing);
    if let Some(path) = &arguments.json {
        write_json(path, &rows)?;
    }
    Ok(passes(&rows, arguments.allow_missing))
}

fn run_jobs(jobs: &[Job<'_>], seed: u64, workers: usize) -> Result<Vec<Row>> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            scope.spawn(|| {
                while failure.lock().is_ok_and(|failure| failure.is_none()) {
                    let index = next.fetch_add(1, SeqCst);
                    let Some(job) = jobs.get(index) else { return };
                    match job.row(seed.wrapping_add(index as u64)) {
                        Ok(row) => {
                            eprintln!("{row}");
                            // Print a broken promise at once: it must not be lost if the hours
                            // of work are interrupted.
                            if let (Expected::Kept, Some(first)) =
                                (row.role.expected(), &row.findings.first)
                            {
                                eprintln!("{first}");
                            }
                            rows.lock().expect("no row panics").push((index, row));
                        }
                        Err(error) => {
                            let (group, name) = (job.role.group(), &job.name);
                            let error = format!("{group} {name}, {}: {error}", job.config);
                            failure.lock().expect("no row panics").get_or_insert(error);
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = failure.into_inner().expect("no row panics") {
        return Err(error.into());
    }
    let mut rows = rows.into_inner().expect("no row panics");
    rows.sort_by_key(|(index, _)| *index);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Locked while a big recording is in memory.
static BIG: Mutex<()> = Mutex::new(());

impl Task {
    fn job(&self) -> Job<'_> {
        let make = Box::new(|seed| self.make(seed));
        Job { role: self.role, name: self.name.clone(), config: self.config, make }
    }

    /// Records and cuts until the row has its cuts; a mutant's row ends when the mutant is
    /// caught.
    fn make(&self, seed: u64) -> Result<Findings> {
        // Catching a mutant once is enough.
        let until_broken = matches!(self.tool, Tool::Mutant { .. });
        let missing = self.work.missing().or_else(|| self.tool.missing());
        if missing.is_some() {
            return Ok(Findings { skipped: missing, ..Findings::default() });
        }
        let mut findings = Findings::default();
        let _alone = self.work.is_big().then(|| BIG.lock());
        // Every part is run and cut, however few cuts are requested.
        let recordings = self.work.recordings().max(self.cuts.div_ceil(PER_RECORDING));
        let cuts = self.cuts.max(recordings);
        for round in 0..recordings {
            if until_broken && findings.broken() > 0 {
                break;
            }
            let work = self.work.part(round);
            let recorded = record(self.config, work, &self.tool, LoadKind::of(3 * round as u64))?;
            let count = cuts * (round + 1) / recordings - cuts * round / recordings;
            let seed = seed.wrapping_mul(1_000_003).wrapping_add(round as u64);
            findings.merge(cut(&recorded, count, seed, until_broken)?);
        }
        Ok(findings)
    }
}
