//! Trees: every verb of `synconce tree`, cut and killed.
//!
//! A *script* of all verbs is recorded and cut like a run. The checked state is a store in
//! which each tree must be as before the interrupted verb or as after it. Kills hit each verb
//! separately, on a disk that stays up.

mod check;
mod cuts;
mod fixture;
mod kills;
mod mutants;
mod recording;
mod script;
mod store;
mod walk;

use crate::background_load::LoadKind;
use crate::campaign::{Campaign, Findings};
use crate::config::{DiskKind, MarkerPlace, RunConfig};
use crate::row::{Job, Role};
use crate::tool::Tool;
use crate::{ProveArguments, Result};
pub(crate) use fixture::{Edit, perform as edit};
use kills::KillCampaign;
pub(crate) use kills::Trigger;
use mutants::CaughtBy;
pub(crate) use mutants::MUTANTS;
use mutants::OF_SNAPSHOTS;
use walk::Injection;
pub(crate) use walk::{Alter, RunChild, alter, run_child};

/// Maximum number of cuts of one recorded script.
const PER_RECORDING: usize = 60;
/// The same, if all cuts are in one verb. Fewer, so that there are more recordings: a fault shows
/// only if another process commits between two steps of the verb.
const PER_RECORDING_OF_ONE_VERB: usize = 15;
/// Seconds within which the walk must find a tree that was altered (the control).
const CONTROLLED: u64 = 6;
/// With fewer cuts than this only a few rows are made.
const FEW: usize = 20;
/// Clones by the store's own strategy, and by every other one.
const WAYS: [(DiskKind, Option<&str>); 7] = [
    (DiskKind::Ext4, None),
    (DiskKind::Xfs, None),
    (DiskKind::Btrfs, None),
    (DiskKind::Ext4Writeback, None),
    (DiskKind::Ext4, Some("copy")),
    (DiskKind::Xfs, Some("reflink")),
    (DiskKind::Btrfs, Some("overlay")),
];

fn config(disk: DiskKind) -> RunConfig {
    RunConfig::supervised(disk, MarkerPlace::Nowhere)
}

/// Returns every row of trees.
pub(crate) fn jobs(arguments: &ProveArguments) -> Vec<Job<'_>> {
    let shipped = arguments.shipped();
    let mut jobs = Vec::new();
    let cuts = arguments.tree_cuts.unwrap_or(arguments.cuts);
    // A quick look uses the store's own strategy only.
    let is_quick = cuts < FEW;
    let ways = WAYS.into_iter().take(if is_quick { 3 } else { WAYS.len() });
    for (index, (disk, strategy)) in ways.enumerate() {
        let by = strategy.map_or_else(String::new, |strategy| format!(", {strategy}"));
        let tool = shipped.clone();
        let cut = move |seed| cut(disk, strategy, &tool, (cuts, None), seed);
        jobs.push(Job::new(Role::Promise, format!("tree: cuts{by}"), config(disk), cut));
        let tool = shipped.clone();
        // A quick look at all disks reaches each verb once.
        let kills = KillCampaign { count: arguments.kills, first: index * arguments.kills };
        let kill = move |seed| kills::kill(disk, strategy, &tool, kills, seed);
        jobs.push(Job::new(Role::Promise, format!("tree: kills{by}"), config(disk), kill));
    }
    jobs.extend([DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs].map(|disk| {
        let tool = Tool::InRun(arguments.synconce.clone());
        let cut = move |seed| cut(disk, None, &tool, (cuts, None), seed);
        Job::new(Role::Promise, "tree: cuts, in a run", config(disk), cut)
    }));
    jobs.extend(walks(arguments));
    if is_quick {
        return jobs;
    }
    let disk = DiskKind::Ext4NoBarrier;
    let control = move |seed| cut(disk, None, &shipped, (cuts, None), seed);
    let name = "tree: no flush reaches the disk";
    jobs.push(Job::new(Role::Control, name, config(disk), control));
    jobs.extend(mutated(arguments));
    jobs
}

/// Returns the rows in which two processes work on the same trees, and the control, in which a
/// tree is altered without the tool.
fn walks(arguments: &ProveArguments) -> Vec<Job<'_>> {
    let row = |role, name: &str, disk, seconds, injection| {
        let tool = arguments.shipped();
        let make = move |seed| walk::walk(disk, &tool, seconds, injection, seed);
        Job::new(role, name, config(disk), make)
    };
    let seconds = arguments.seconds;
    let disks = [DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs];
    let mut jobs: Vec<Job<'_>> =
        disks.map(|disk| row(Role::Promise, "tree-walk", disk, seconds, Injection::None)).into();
    let name = "tree-walk: content swapped";
    jobs.push(row(
        Role::Control,
        name,
        DiskKind::Ext4,
        seconds.min(CONTROLLED),
        Injection::SwapContent,
    ));
    jobs
}

fn mutated(arguments: &ProveArguments) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for mutant in MUTANTS {
        let Some(tool) = arguments.mutant(mutant.name) else { break };
        let kills = KillCampaign { count: arguments.kills, first: 0 };
        for disk in [DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs] {
            let tool = tool.clone();
            let make = move |seed| match mutant.caught_by {
                CaughtBy::Cut(verb) => cut(disk, None, &tool, (arguments.mutant_cuts, verb), seed),
                CaughtBy::Kill => kills::kill(disk, None, &tool, kills, seed),
                CaughtBy::Walk => walk::walk(disk, &tool, arguments.seconds, Injection::None, seed),
            };
            let is_own = disk == DiskKind::Btrfs && OF_SNAPSHOTS.contains(&mutant.name);
            let by = if is_own { ", snapshot" } else { "" };
            let name = format!("{}{by}", mutant.name);
            jobs.push(Job::new(Role::Mutant, name, config(disk), make));
        }
    }
    jobs
}

/// Records and cuts the script until the row has its cuts; a mutant's row ends when the mutant
/// is caught. With `verb` all cuts are in this verb.
fn cut(
    disk: DiskKind,
    strategy: Option<&'static str>,
    tool: &Tool,
    (count, verb): (usize, Option<&'static str>),
    seed: u64,
) -> Result<Findings> {
    let most = if verb.is_some() { PER_RECORDING_OF_ONE_VERB } else { PER_RECORDING };
    Campaign::new(tool, count, seed).record(count.div_ceil(most), |round, part| {
        let load = LoadKind::for_round(3 * round);
        cuts::cut(&recording::record(disk, strategy, tool, load)?, verb, part)
    })
}
