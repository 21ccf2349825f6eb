//! A random walk over the verbs by two processes on the same few trees. Some processes are
//! killed. Every tree's content and state and every message is compared with a model.

mod alter;
mod child;
mod injection;
mod messages;
mod model;
mod output;
mod shared;
mod steps;
mod verbs;
mod versions;
mod worker;

use self::model::{Model, WORKERS};
use self::shared::{TreeWalk, WalkEnd, WalkState};
use self::versions::Versions;
use self::worker::Worker;
use super::check::Defect;
use super::recording::{control, store_on};
use super::store::{Interruption, SeenStore, Store};
use crate::Result;
use crate::campaign::Findings;
use crate::config::DiskKind;
use crate::tool::Tool;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub(crate) use alter::{Alter, perform as alter};
pub(crate) use child::{RunChild, perform as run_child};
pub(super) use injection::Injection;

/// Room for all layers of five trees, and for layers that wait for their removal.
const SIZE: u64 = 2 << 30;

/// Walks for `seconds`, or until the first finding. The control and a mutant walk longer if nothing
/// was found by then: on a slow disk or a busy machine few commands run at the same time.
pub(super) fn walk(
    disk: DiskKind,
    tool: &Tool,
    seconds: u64,
    injection: Injection,
    seed: u64,
) -> Result<Findings> {
    let control = control()?;
    let source = control.path().join("source");
    alter::make(&source)?;
    let rig = disk.rig(SIZE).up()?;
    let path = store_on(rig.path());
    let store =
        Store { tool, path, control: control.path().to_owned(), times: true, is_random: true };
    if !store.verb("init")?.status.success() {
        return Err("the store cannot be made".into());
    }
    let versions = Versions::new(control.path().join("versions"), &source)?;
    let began = Instant::now();
    let walk = TreeWalk::new(
        &store,
        Model::new(versions),
        began + Duration::from_secs(seconds),
        injection == Injection::SwapContent || matches!(tool, Tool::Mutant { .. }),
    );
    let failed = std::thread::scope(|scope| {
        let start = |number| {
            let seed = seed.wrapping_mul(2).wrapping_add(number as u64);
            let injection = if number == 0 { injection } else { Injection::None };
            let mut worker = Worker::new(&walk, number, seed, injection)?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(scope.spawn(move || worker.work()))
        };
        let workers: Vec<_> = (0..WORKERS).map(start).collect::<Result<_>>()?;
        for worker in workers {
            worker.join().map_err(|_| "a worker panicked")??;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    });
    failed?;
    let mut shared = walk.into_shared()?;
    if shared.findings.broken() == 0
        && let Some((kind, detail)) = at_the_end(&store, &mut shared.ended)?
    {
        shared.note((kind, format!("the end: {detail}")));
    }
    let WalkState { mut findings, counts, .. } = shared;
    findings.millis = began.elapsed().as_millis() as u64;
    eprintln!(
        "tree-walk, {}, seed {seed}: {counts} in {} s",
        super::config(disk),
        findings.millis / 1000
    );
    // The rig is busy if a mount of the file system is left in any namespace.
    if let Err(error) = rig.down() {
        findings.note("mounted", || format!("the end: {error}"));
    }
    Ok(findings)
}

/// Checks the whole store after the last process has ended.
fn at_the_end(store: &Store<'_>, ended: &mut WalkEnd) -> Result<Option<Defect>> {
    let WalkEnd { model, messages } = ended;
    let seen = store.inspect(Interruption::Kill, 0)?;
    if let Some(fault) = messages.count(&seen.first).or_else(|| messages.count(&seen.second)) {
        return Ok(Some(fault));
    }
    if let Some(fault) = messages.unreported() {
        return Ok(Some(fault));
    }
    Ok(wrong(model, &seen))
}

/// Returns what no case of the model explains in a store at rest.
fn wrong(model: &Model, seen: &SeenStore) -> Option<Defect> {
    if !seen.faults.is_empty() {
        return Some(("false alarm", seen.faults.join(" | ")));
    }
    let open: BTreeSet<&str> =
        seen.listed.iter().filter(|tree| tree.state == "open").map(|tree| &*tree.name).collect();
    let explains = |world: &model::TreesModel| {
        let is_open = |name: &str| open.contains(name);
        world.trees.len() == seen.trees.len()
            && world.trees.iter().all(|(name, tree)| {
                let found = seen.trees.get(*name).and_then(|found| found.as_ref().ok());
                found == Some(model.versions.content(tree.live()))
                    && tree.open.is_some() == is_open(name)
            })
    };
    if !model.worlds().iter().any(|world| explains(world)) {
        let found: Vec<String> = seen.listed.iter().map(|tree| format!("{tree:?}")).collect();
        let unreadable = seen.trees.values().filter_map(|tree| tree.as_ref().err());
        let why: Vec<&str> = unreadable.map(String::as_str).collect();
        let found =
            format!("{} {}; not one of {:?}", found.join(", "), why.join("; "), model.worlds());
        return Some(("wrong", found));
    }
    if !seen.leftovers.is_empty() {
        return Some(("leftovers", seen.leftovers.join(", ")));
    }
    seen.unusable.clone().map(|why| ("unusable", why))
}
