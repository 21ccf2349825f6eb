//! All rows, and what they have to show.

use crate::bystanders::Company;
use crate::cuts::{Findings, cut};
use crate::mutants::MUTANTS;
use crate::report::{Expected, Row, print, write_json};
use crate::scene::{Disk, MarkerPlace, Mode, Scene};
use crate::take::record;
use crate::tool::Tool;
use crate::work::Work;
use crate::{Arguments, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A row that is still to be made.
struct Task {
    group: &'static str,
    name: String,
    scene: Scene,
    work: Work,
    tool: Tool,
    expected: Expected,
    cuts: usize,
}

/// Rigs side by side: one records or mounts while another waits for its disk.
const WORKERS: usize = 3;
/// Takes of a row, at least: one in each company.
const TAKES: usize = 4;
/// Cuts of one take, at most: then another one is recorded, which goes differently.
const PER_TAKE: usize = 120;

/// Makes every row; `true` when each shows what is expected of it.
pub(crate) fn prove(arguments: &Arguments) -> Result<bool> {
    let mut tasks = tasks(arguments);
    tasks.retain(|task| arguments.wants(task.group, &task.name, task.scene));
    let mut rows = work_off(&tasks, arguments.seed)?;
    rows.extend(crate::errors::rows(arguments)?);
    if rows.is_empty() {
        return Err("no row has such a name".into());
    }
    print(&rows);
    if let Some(path) = &arguments.json {
        write_json(path, &rows)?;
    }
    Ok(crate::report::verdict(&rows))
}

fn tasks(arguments: &Arguments) -> Vec<Task> {
    let shipped = || Tool::Synconce(arguments.synconce.clone());
    let mut tasks = Vec::new();
    for scene in Scene::all() {
        let works: &[Work] = match (scene.marker, scene.mode) {
            (MarkerPlace::Same, Mode::Supervised) => &[Work::Files, Work::Daemon],
            _ => &[Work::Files],
        };
        for work in works {
            tasks.push(Task {
                group: "promise",
                name: work.name().to_owned(),
                scene,
                work: *work,
                tool: shipped(),
                expected: Expected::Kept,
                cuts: arguments.cuts,
            });
        }
    }
    let beside = |disk| Scene { disk, marker: MarkerPlace::Same, mode: Mode::Supervised };
    tasks.push(Task {
        group: "control",
        name: "no flush reaches the disk".to_owned(),
        scene: beside(Disk::Ext4NoBarrier),
        work: Work::Files,
        tool: shipped(),
        expected: Expected::Broken,
        cuts: arguments.cuts,
    });
    if let Some(program) = &arguments.mutants {
        for mutant in MUTANTS {
            tasks.extend(mutant.scenes().into_iter().map(|scene| Task {
                group: "mutant",
                name: mutant.name.to_owned(),
                scene,
                work: mutant.work,
                tool: Tool::Mutant {
                    program: program.clone(),
                    mutant: mutant.name,
                    shipped: arguments.synconce.clone(),
                },
                expected: mutant.expected(),
                cuts: arguments.mutant_cuts,
            }));
        }
    }
    if !arguments.no_rivals {
        for tool in [Tool::Plain, Tool::Eatmydata] {
            tasks.extend([Disk::Ext4, Disk::Xfs, Disk::Btrfs].map(|disk| Task {
                group: "rival",
                name: tool.name().to_owned(),
                scene: beside(disk),
                work: Work::Files,
                tool: tool.clone(),
                expected: Expected::Shown,
                cuts: arguments.cuts,
            }));
        }
    }
    tasks
}

fn work_off(tasks: &[Task], seed: u64) -> Result<Vec<Row>> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS.min(tasks.len()) {
            scope.spawn(|| {
                while failure.lock().is_ok_and(|failure| failure.is_none()) {
                    let index = next.fetch_add(1, SeqCst);
                    let Some(task) = tasks.get(index) else { return };
                    match task.make(seed.wrapping_add(index as u64)) {
                        Ok(row) => {
                            eprintln!("{row}");
                            rows.lock().expect("no row panics").push((index, row));
                        }
                        Err(error) => {
                            let error =
                                format!("{} {}, {}: {error}", task.group, task.name, task.scene);
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

impl Task {
    /// Records and cuts until the row has its cuts; a mutant's row ends when it is caught.
    fn make(&self, seed: u64) -> Result<Row> {
        // A mutant need not be caught twice.
        let until_broken = matches!(self.tool, Tool::Mutant { .. });
        let mut findings = Findings::default();
        let mut round = 0;
        while findings.cuts < self.cuts && !(until_broken && findings.broken() > 0) {
            let take = record(self.scene, self.work, &self.tool, Company::of(round))?;
            let each = self.cuts.div_ceil(TAKES).min(PER_TAKE);
            let count = each.min(self.cuts - findings.cuts);
            let seed = seed.wrapping_mul(1_000_003).wrapping_add(round);
            findings.merge(cut(&take, count, seed, until_broken)?);
            round += 1;
        }
        Ok(Row {
            group: self.group,
            name: self.name.clone(),
            scene: self.scene,
            expected: self.expected,
            findings,
        })
    }
}
