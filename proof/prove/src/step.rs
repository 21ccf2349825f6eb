//! A build step whose root is volatile, by a real runc: once the engine has recorded the layer,
//! the layer must be whole at every cut.
//!
//! The proof is the engine. As BuildKit does, it mounts the root, calls the runtime, removes the
//! stub of a mount from the root and restores the time of its directory, unmounts the root, and
//! then records the layer in a database (fdatasync(2) of a file of fixed size).
//!
//! Makes one row at a time: a mount namespace of another row would copy the root.

mod engine;

use crate::background_load::{BackgroundLoad, LoadKind};
use crate::campaign::{Campaign, Findings};
use crate::config::{DiskKind, MarkerPlace, Mode, RunConfig};
use crate::cuts::{BESIDE, cut_at, differ, mount, one_of, replays};
use crate::recording::{mark, place};
use crate::row::{Job, Role};
use crate::tool::Tool;
use crate::work::is_installed;
use crate::{ProveArguments, Result};
use engine::{Calls, StepEngine};
use std::time::Duration;

/// The rows of sound disks.
const ROWS: [(&str, Calls); 3] = [
    ("step: a volatile root", Calls::Run),
    ("step: a volatile root, by a shim", Calls::CreateAndDelete { is_used: false }),
    ("step: a volatile root, used by the host", Calls::CreateAndDelete { is_used: true }),
];

/// Steps of the end of a step.
pub(crate) const MUTANTS: [(&str, &str); 2] = [
    ("step-root-unsynced", "the root stays volatile, and its file system is not synced"),
    ("step-root-volatile", "the root stays volatile: what the engine changes later is not synced"),
];

/// Maximum number of cuts of one recorded step.
const PER_RECORDING: usize = 60;
/// How long the background load continues after the record.
const AFTER: Duration = Duration::from_millis(80);

/// Returns the rows of the shipped tool and of the mutants.
pub(crate) fn jobs(arguments: &ProveArguments) -> Vec<Job<'static>> {
    let seed = arguments.seed;
    let mut jobs = Vec::new();
    let mut add = |role: Role, name: &str, calls, disk, tool: Tool, cuts| {
        let mode = Mode::Sealed;
        let config = RunConfig { mode, ..RunConfig::supervised(disk, MarkerPlace::Nowhere) };
        jobs.push(Job::new(role, name, config, move |_| make(calls, disk, &tool, cuts, seed)));
    };
    for disk in DiskKind::SOUND {
        for (name, calls) in ROWS {
            add(Role::Promise, name, calls, disk, arguments.shipped(), arguments.cuts);
        }
    }
    for (mutant, _) in MUTANTS {
        let Some(tool) = arguments.mutant(mutant) else { continue };
        for disk in [DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs] {
            add(Role::Mutant, mutant, Calls::Run, disk, tool.clone(), arguments.mutant_cuts);
        }
    }
    jobs
}

/// Records as many steps as `cuts` need, and cuts each. A mutant's row ends when the mutant is
/// caught.
fn make(calls: Calls, disk: DiskKind, tool: &Tool, cuts: usize, seed: u64) -> Result<Findings> {
    let missing = ["runc", "busybox"].into_iter().find(|program| !is_installed(program));
    if let Some(program) = missing {
        let skipped = Some(format!("{program} is not installed"));
        return Ok(Findings { skipped, ..Findings::default() });
    }
    Campaign::new(tool, cuts, seed).record(cuts.div_ceil(PER_RECORDING), |round, part| {
        let load = match tool {
            // A mutant is missed if another process commits the journal for it.
            Tool::Mutant { .. } => LoadKind::writing_back(round),
            _ => LoadKind::for_round(round),
        };
        record_and_cut(calls, disk, tool, load, part)
    })
}

fn record_and_cut(
    calls: Calls,
    disk: DiskKind,
    tool: &Tool,
    load: LoadKind,
    campaign: Campaign,
) -> Result<Findings> {
    let engine = StepEngine::new(disk, tool, calls)?;
    let log_of = || engine.rig().disk();
    let background_load = BackgroundLoad::start(load, &engine.own(), &[engine.upper()]);
    log_of().mark(mark::START)?;
    engine.build()?;
    log_of().mark(mark::RETURNED)?;
    let finished = engine.layer()?;
    std::thread::sleep(AFTER);
    drop(background_load);
    log_of().mark(mark::END)?;
    let recording = engine.rig().recording()?;
    let log = recording.log()?;
    let all: Vec<usize> = log.places(place(&log, mark::START)?, place(&log, mark::END)?).collect();
    let end = place(&log, mark::RETURNED)?;
    let returned = all.partition_point(|place| *place < end);
    let replays = replays(recording, disk, campaign, BESIDE)?;
    let mut random = fastrand::Rng::with_seed(campaign.seed);
    let place = |number| {
        // A fifth of the cuts is anywhere, and the rest is near or after the record.
        let near = returned.saturating_sub(20)..all.len();
        let range = if number % 5 == 4 { 0..all.len() } else { near };
        one_of(&all, range, (number, returned), &mut random)
    };
    let places: Vec<_> = (0..campaign.count).map(place).collect();
    campaign.on_each(&replays, &places, |replay, place| {
        let is_promised = place.disk >= all[returned];
        replay.cut(cut_at(place, place.disk))?;
        let seen = match mount(|| replay.mount()) {
            Err(error) => Err(error.to_string()),
            Ok(mounted) => {
                let is_recorded = engine::is_recorded(mounted.path())?;
                let found = engine::layer(mounted.path()).unwrap_or_default();
                Ok(if is_recorded {
                    (found != finished).then(|| ("incomplete", differ(&finished, &found)))
                } else {
                    is_promised.then(|| ("lost", "the record".to_owned()))
                })
            }
        };
        Ok((seen, is_promised))
    })
}
