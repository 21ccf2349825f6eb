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
use crate::config::{DiskKind, MarkerPlace, Mode, RunConfig};
use crate::cuts::{CutPoint, Findings, cut_at, mount, random_survivors};
use crate::recording::mark;
use crate::row::{Role, Row};
use crate::tool::Tool;
use crate::work::is_installed;
use crate::{ProveArguments, Result};
use engine::{Calls, StepEngine};
use std::time::{Duration, Instant};
use synconce_testkit::manifest::{Manifest, diff};
use synconce_testkit::rig::Survivors;

/// The rows of sound disks.
const ROWS: [(&str, Calls); 2] = [
    ("step: a volatile root", Calls::Run),
    ("step: a volatile root, by a shim", Calls::CreateAndDelete),
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

/// Returns the rows that `arguments` select.
pub(crate) fn rows(arguments: &ProveArguments) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut add = |role: Role, name: &str, calls, disk, tool: &Tool, cuts| -> Result<()> {
        let mode = Mode::Sealed;
        let config = RunConfig { mode, ..RunConfig::supervised(disk, MarkerPlace::Nowhere) };
        if arguments.wants(role.group(), name, config) {
            let findings = make(calls, disk, tool, cuts, arguments.seed)?;
            let row = Row { role, name: name.to_owned(), config, findings };
            eprintln!("{row}");
            rows.push(row);
        }
        Ok(())
    };
    let shipped = Tool::Synconce(arguments.synconce.clone());
    for disk in DiskKind::SOUND {
        for (name, calls) in ROWS {
            add(Role::Promise, name, calls, disk, &shipped, arguments.cuts)?;
        }
    }
    for (mutant, _) in MUTANTS {
        let Some(program) = &arguments.mutants else { continue };
        let (program, shipped) = (program.clone(), arguments.synconce.clone());
        let tool = Tool::Mutant { program, mutant, shipped };
        for disk in [DiskKind::Ext4, DiskKind::Xfs, DiskKind::Btrfs] {
            add(Role::Mutant, mutant, Calls::Run, disk, &tool, arguments.mutant_cuts)?;
        }
    }
    Ok(rows)
}

/// Records as many steps as `cuts` need, and cuts each. A mutant's row ends when the mutant is
/// caught.
fn make(calls: Calls, disk: DiskKind, tool: &Tool, cuts: usize, seed: u64) -> Result<Findings> {
    let missing = ["runc", "busybox"].into_iter().find(|program| !is_installed(program));
    if let Some(program) = missing {
        let skipped = Some(format!("{program} is not installed"));
        return Ok(Findings { skipped, ..Findings::default() });
    }
    let until_broken = matches!(tool, Tool::Mutant { .. });
    let recordings = cuts.div_ceil(PER_RECORDING);
    let mut findings = Findings::default();
    for round in 0..recordings {
        if until_broken && findings.broken() > 0 {
            break;
        }
        let count = cuts * (round + 1) / recordings - cuts * round / recordings;
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003) + round as u64);
        // A mutant is missed if another process commits the journal for it.
        let load = if until_broken {
            LoadKind::writing_back(round as u64)
        } else {
            LoadKind::of(round as u64)
        };
        findings.merge(record_and_cut(calls, disk, tool, load, count, &mut random)?);
    }
    Ok(findings)
}

fn record_and_cut(
    calls: Calls,
    disk: DiskKind,
    tool: &Tool,
    load: LoadKind,
    count: usize,
    random: &mut fastrand::Rng,
) -> Result<Findings> {
    let began = Instant::now();
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
    let at = |name| log.mark(name).ok_or_else(|| format!("the mark {name} is missing"));
    let all: Vec<usize> = log.places(at(mark::START)?, at(mark::END)?).collect();
    let returned = all.partition_point(|place| *place < at(mark::RETURNED).unwrap_or_default());
    let replay = recording.replay().up()?;
    let mut findings = Findings::default();
    for number in 0..count {
        // The first cut is right at the return, and every unflushed write is lost. A fifth of the
        // others is anywhere, and the rest is near or after the record.
        let near = returned.saturating_sub(20)..all.len();
        let range = if number % 5 == 4 { 0..all.len() } else { near };
        let at = if number == 0 { returned } else { random.usize(range) };
        let (survivors, granularity) = random_survivors(random);
        let survivors = if number == 0 { Survivors::None } else { survivors };
        let place = CutPoint { disk: all[at], other: 0, survivors, granularity };
        replay.cut(cut_at(place, place.disk))?;
        findings.cuts += 1;
        let mounted = match mount(|| replay.mount()) {
            Ok(mounted) => mounted,
            Err(error) => {
                let detail = || format!("{place:?}: {error}");
                if at >= returned {
                    findings.note("lost", detail);
                } else {
                    findings.refuse(detail);
                }
                continue;
            }
        };
        let is_recorded = engine::is_recorded(mounted.path())?;
        if at >= returned && !is_recorded {
            findings.note("lost", || format!("the record, at {place:?}"));
        }
        let found = engine::layer(mounted.path()).unwrap_or_default();
        if is_recorded && found != finished {
            findings.note("incomplete", || format!("{place:?}: {}", differ(&finished, &found)));
        }
    }
    findings.millis = began.elapsed().as_millis() as u64;
    Ok(findings)
}

fn differ(finished: &Manifest, found: &Manifest) -> String {
    let all = diff(finished, found);
    let shown: Vec<_> = all.iter().take(3).map(ToString::to_string).collect();
    format!("{} differences from the finished layer: {}", all.len(), shown.join("; "))
}
