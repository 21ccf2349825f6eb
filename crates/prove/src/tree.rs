//! Trees: every verb of `synconce tree`, cut and killed.
//!
//! A *script* of all verbs is recorded and cut as a run is; what is found is a store in which each tree
//! has to be as before the verb that was hit or as after it. Killed is every verb for itself, on a disk
//! that goes on.

mod cuts;
mod ground;
mod judge;
mod kills;
mod mutants;
mod script;
mod store;
mod take;
mod walk;

use crate::bystanders::Company;
use crate::cuts::Findings;
use crate::row::{Job, Role};
use crate::scene::{Disk, MarkerPlace, Scene};
use crate::tool::Tool;
use crate::{Arguments, Result};
pub(crate) use ground::{Edit, perform as edit};
pub(crate) use mutants::MUTANTS;
use mutants::Shown;
use walk::Sabotage;
pub(crate) use walk::{Alter, Leash, alter, leash};

/// Cuts of one recorded script, at most.
const PER_TAKE: usize = 60;
/// Seconds after which the walk has to have seen a tree that was altered.
const CONTROLLED: u64 = 6;
/// So few cuts are a quick look.
const FEW: usize = 20;
/// Clones by the store's own choice, and by what else there is.
const WAYS: [(Disk, Option<&str>); 7] = [
    (Disk::Ext4, None),
    (Disk::Xfs, None),
    (Disk::Btrfs, None),
    (Disk::Ext4Writeback, None),
    (Disk::Ext4, Some("copy")),
    (Disk::Xfs, Some("reflink")),
    (Disk::Btrfs, Some("overlay")),
];

fn scene(disk: Disk) -> Scene {
    Scene::supervised(disk, MarkerPlace::Nowhere)
}

/// Every row of trees.
pub(crate) fn jobs(arguments: &Arguments) -> Vec<Job<'_>> {
    let shipped = Tool::Synconce(arguments.synconce.clone());
    let mut jobs = Vec::new();
    let cuts = arguments.tree_cuts.unwrap_or(arguments.cuts);
    // What a change is tried with is the store's own choice.
    let is_quick = cuts < FEW;
    for (disk, strategy) in WAYS.into_iter().take(if is_quick { 3 } else { WAYS.len() }) {
        let by = strategy.map_or_else(String::new, |strategy| format!(", {strategy}"));
        let (name, tool) = (format!("tree: cuts{by}"), shipped.clone());
        let cut = move |seed| cut(disk, strategy, &tool, cuts, seed);
        jobs.push(Job { role: Role::Promise, name, scene: scene(disk), make: Box::new(cut) });
        let (name, tool) = (format!("tree: kills{by}"), shipped.clone());
        let kill = move |seed| kills::kill(disk, strategy, &tool, arguments.kills, seed);
        jobs.push(Job { role: Role::Promise, name, scene: scene(disk), make: Box::new(kill) });
    }
    jobs.extend(walks(arguments));
    if is_quick {
        return jobs;
    }
    let control = move |seed| cut(Disk::Ext4NoBarrier, None, &shipped, cuts, seed);
    jobs.push(Job {
        role: Role::Control,
        name: "tree: no flush reaches the disk".to_owned(),
        scene: scene(Disk::Ext4NoBarrier),
        make: Box::new(control),
    });
    jobs.extend(mutated(arguments));
    jobs
}

/// Two processes on the same trees, and the control: a tree that is altered behind the tool's back.
fn walks(arguments: &Arguments) -> Vec<Job<'_>> {
    let row = |role, name: &str, disk, seconds, sabotage| {
        let tool = Tool::Synconce(arguments.synconce.clone());
        let make = move |seed| walk::walk(disk, &tool, seconds, sabotage, seed);
        Job { role, name: name.to_owned(), scene: scene(disk), make: Box::new(make) }
    };
    let seconds = arguments.seconds;
    let disks = [Disk::Ext4, Disk::Xfs, Disk::Btrfs];
    let mut jobs: Vec<Job<'_>> =
        disks.map(|disk| row(Role::Promise, "tree-walk", disk, seconds, Sabotage::Nothing)).into();
    let name = "tree-walk: content swapped";
    jobs.push(row(Role::Control, name, Disk::Ext4, seconds.min(CONTROLLED), Sabotage::Swap));
    jobs
}

fn mutated(arguments: &Arguments) -> Vec<Job<'_>> {
    let Some(program) = &arguments.mutants else { return Vec::new() };
    let mut jobs = Vec::new();
    for mutant in MUTANTS {
        for disk in [Disk::Ext4, Disk::Xfs, Disk::Btrfs] {
            let (program, shipped) = (program.clone(), arguments.synconce.clone());
            let tool = Tool::Mutant { program, mutant: mutant.name, shipped };
            let make = move |seed| match mutant.shown {
                Shown::Cut => cut(disk, None, &tool, arguments.mutant_cuts, seed),
                Shown::Kill => kills::kill(disk, None, &tool, arguments.kills, seed),
                Shown::Walk => walk::walk(disk, &tool, arguments.seconds, Sabotage::Nothing, seed),
            };
            let (role, name) = (Role::Mutant, mutant.name.to_owned());
            jobs.push(Job { role, name, scene: scene(disk), make: Box::new(make) });
        }
    }
    jobs
}

/// Records the script as often as it takes, and cuts it; a mutant's row ends when it is caught.
fn cut(
    disk: Disk,
    strategy: Option<&'static str>,
    tool: &Tool,
    count: usize,
    seed: u64,
) -> Result<Findings> {
    let until_broken = matches!(tool, Tool::Mutant { .. });
    let mut findings = Findings::default();
    let takes = count.div_ceil(PER_TAKE);
    for round in 0..takes {
        if until_broken && findings.broken() > 0 {
            break;
        }
        let take = take::record(disk, strategy, tool, Company::of(3 * round as u64))?;
        let cuts = count * (round + 1) / takes - count * round / takes;
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(round as u64);
        findings.merge(cuts::cut(&take, cuts, seed, until_broken)?);
    }
    Ok(findings)
}
