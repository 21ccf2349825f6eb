//! apt and dpkg with the wrappers of `synconce setup apt`: power cuts of the set-up, of an install
//! and of the undo, in a small Debian root with the machine's own dpkg and apt.
//!
//! After each cut of a set-up or an undo the programs work, and the next undo leaves the root as
//! before. After each cut of an install the root is as before, or as after; or `synconce status`
//! names the run, and the commands that it prints are typed and leave the root as an install that
//! was not cut.

mod root;

use crate::background_load::{BackgroundLoad, LoadKind};
use crate::campaign::{BrokenPromise, Campaign, Findings};
use crate::config::{DiskKind, MarkerPlace, RunConfig};
use crate::cuts::{cut_at, differ, mount, one_of};
use crate::recording::{mark, place, without_sync};
use crate::row::{Job, Role};
use crate::tool::Tool;
use crate::{ProveArguments, Result};
use root::{Root, RootTemplate};
use std::sync::Arc;
use std::time::Duration;
use synconce_testkit::manifest::Manifest;
use synconce_testkit::rig::Tape;

/// The mutants, and the act in which each is missed.
const MUTANTS: [(&str, PackageAct); 4] = [
    ("setup-unsynced", PackageAct::SetUp),
    ("setup-diversion-unsynced", PackageAct::SetUp),
    ("setup-directory-unsynced", PackageAct::Undo),
    ("commit-skipped", PackageAct::Install),
];

/// One in this many of the requested cuts is made: each cut ends with an undo or an install.
const SHARE: usize = 8;
/// Maximum number of cuts of one recorded act.
const PER_RECORDING: usize = 20;
/// How long the background load continues after the act.
const AFTER: Duration = Duration::from_millis(80);

/// What is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackageAct {
    SetUp,
    Install,
    Undo,
}

impl PackageAct {
    const ALL: [Self; 3] = [Self::SetUp, Self::Install, Self::Undo];

    fn name(self) -> &'static str {
        match self {
            Self::SetUp => "apt: set-up",
            Self::Install => "apt: install",
            Self::Undo => "apt: undo",
        }
    }

    fn script(self) -> &'static str {
        match self {
            Self::SetUp => "synconce setup apt --quiet",
            Self::Install => "apt-get install --yes beta gamma",
            Self::Undo => "synconce setup apt --undo --quiet",
        }
    }
}

/// Returns the rows. Some of them are made in parallel.
pub(crate) fn jobs(arguments: &ProveArguments) -> Vec<Job<'_>> {
    let base = Arc::new(RootTemplate::default());
    let mut jobs = Vec::new();
    let mut add = |role, name: &str, act, disk, tool: &Tool, cuts: usize| {
        let (base, tool) = (Arc::clone(&base), tool.clone());
        let make = move |seed| cut(&base, act, disk, &tool, cuts, seed);
        jobs.push(Job::new(role, name, RunConfig::supervised(disk, MarkerPlace::Same), make));
    };
    let shipped = arguments.shipped();
    let cuts = arguments.cuts.div_ceil(SHARE);
    for act in PackageAct::ALL {
        for disk in [DiskKind::Ext4, DiskKind::Xfs] {
            add(Role::Promise, act.name(), act, disk, &shipped, cuts);
        }
    }
    // The few cuts of the gate do not catch each of them every time.
    if !arguments.decisive {
        let cuts = arguments.mutant_cuts.div_ceil(SHARE);
        for (mutant, act) in MUTANTS {
            let Some(tool) = arguments.mutant(mutant) else { break };
            let name = format!("{}, {mutant}", act.name());
            add(Role::Mutant, &name, act, DiskKind::Ext4, &tool, cuts);
        }
    }
    jobs
}

/// An act that was recorded, and the content of the root.
struct RecordedAct {
    tape: Tape,
    /// Before any set-up.
    untouched: Manifest,
    before: Manifest,
    finished: Manifest,
}

/// Records as many acts as `cuts` need, and cuts each. A mutant's row ends when the mutant is
/// caught.
fn cut(
    base: &RootTemplate,
    act: PackageAct,
    disk: DiskKind,
    tool: &Tool,
    cuts: usize,
    seed: u64,
) -> Result<Findings> {
    if let Some(missing) = root::missing() {
        return Ok(Findings { skipped: Some(missing), ..Findings::default() });
    }
    Campaign::new(tool, cuts, seed).record(cuts.div_ceil(PER_RECORDING), |round, part| {
        // Another process that syncs would commit the journal for a mutant.
        let load = LoadKind::writing_back(round);
        cut_recorded(&record(base, act, disk, tool, load)?, act, tool, part)
    })
}

fn record(
    base: &RootTemplate,
    act: PackageAct,
    disk: DiskKind,
    tool: &Tool,
    load: LoadKind,
) -> Result<RecordedAct> {
    let _shared = without_sync();
    let rig = disk.rig(384 << 20).record(true).up()?;
    let root = Root::new(rig.path(), tool)?;
    base.copy_to(&root)?;
    let untouched = root.manifest()?;
    if act != PackageAct::SetUp {
        root.prepare(PackageAct::SetUp.script())?;
    }
    root.sync()?;
    let before = root.manifest()?;
    let own = rig.path().join("background_load");
    std::fs::create_dir(&own)?;
    let background_load = BackgroundLoad::start(load, &own, &[root.path().join("usr")]);
    rig.disk().mark(mark::START)?;
    root.run(act.script())?;
    rig.disk().mark(mark::RETURNED)?;
    let finished = root.manifest()?;
    std::thread::sleep(AFTER);
    drop(background_load);
    rig.disk().mark(mark::END)?;
    Ok(RecordedAct { tape: rig.finish()?, untouched, before, finished })
}

fn cut_recorded(
    recorded: &RecordedAct,
    act: PackageAct,
    tool: &Tool,
    campaign: Campaign,
) -> Result<Findings> {
    let log = recorded.tape.log()?;
    let all: Vec<usize> = log.places(place(&log, mark::START)?, place(&log, mark::END)?).collect();
    let end = place(&log, mark::RETURNED)?;
    let returned = all.partition_point(|place| *place < end);
    let replay = recorded.tape.replay().up()?;
    let mut random = fastrand::Rng::with_seed(campaign.seed);
    campaign.at_each(0..campaign.count, |findings, number| {
        let place = one_of(&all, 0..all.len(), (number, returned), &mut random);
        replay.cut(cut_at(place, place.disk))?;
        let is_returned = place.disk >= all[returned];
        let seen = match mount(|| replay.mount()) {
            Err(error) => Err(error.to_string()),
            Ok(mounted) => {
                let root = Root::new(mounted.path(), &tool.shipped())?;
                // In containers no daily copy is made.
                if act == PackageAct::Install && number % 2 == 1 {
                    root.prepare("rm /var/backups/dpkg.status.0")?;
                }
                Ok(match act {
                    PackageAct::Install => examine_install(recorded, &root, is_returned)?,
                    PackageAct::SetUp | PackageAct::Undo => {
                        examine_set_up(recorded, &root, is_returned)?
                    }
                })
            }
        };
        findings.add(seen, is_returned, || format!("{place:?}"));
        Ok(())
    })
}

/// Checks that apt works, and that the next undo leaves the root as before the set-up.
fn examine_set_up(
    recorded: &RecordedAct,
    root: &Root,
    is_returned: bool,
) -> Result<Option<BrokenPromise>> {
    let found = root.manifest()?;
    if is_returned && found != recorded.finished {
        return Ok(Some(("lost", differ(&recorded.finished, &found))));
    }
    let script = "dpkg --version && apt-get --version && dpkg-divert --list";
    if let Err(error) = root.run(&format!("{script}\nsynconce setup apt --undo --quiet")) {
        return Ok(Some(("broken", error.to_string())));
    }
    let undone = root.manifest()?;
    let is_undone = undone == recorded.untouched;
    Ok((!is_undone).then(|| ("not undone", differ(&recorded.untouched, &undone))))
}

/// Checks that the root is as before or as after the install, or that the run is named as
/// interrupted and mended by the command that is printed.
fn examine_install(
    recorded: &RecordedAct,
    root: &Root,
    is_returned: bool,
) -> Result<Option<BrokenPromise>> {
    let found = root.manifest()?;
    let is_named = root.run("synconce status").is_err();
    let is_whole = found == recorded.finished;
    match (is_returned, is_named) {
        (true, _) if !is_whole => {
            return Ok(Some(("lost", differ(&recorded.finished, &found))));
        }
        (true, true) => return Ok(Some(("false alarm", String::new()))),
        (false, false) if !is_whole && found != recorded.before => {
            return Ok(Some(("undetected", differ(&recorded.before, &found))));
        }
        (_, false) => return Ok(None),
        (false, true) => {}
    }
    if let Err(error) = root.run(root::MEND) {
        return Ok(Some(("not mended", error.to_string())));
    }
    let mended = root.manifest()?;
    let is_mended = mended == recorded.finished;
    Ok((!is_mended).then(|| ("not mended", differ(&recorded.finished, &mended))))
}
