//! apt and dpkg with the wrappers of `synconce setup apt`: power cuts of the set-up, of an install
//! and of the undo, in a small Debian root with the machine's own dpkg and apt.
//!
//! After each cut of a set-up or an undo the programs work, and the next undo leaves the root as
//! before. After each cut of an install the root is as before, or as after; or `synconce status`
//! names the run, and the commands that it prints are typed and leave the root as an install that
//! was not cut.

mod root;

use crate::background_load::{BackgroundLoad, LoadKind};
use crate::config::{DiskKind, MarkerPlace, RunConfig};
use crate::cuts::{CutPoint, Findings, cut_at, mount, random_survivors};
use crate::recording::{mark, without_sync};
use crate::row::{Job, Role};
use crate::tool::Tool;
use crate::{ProveArguments, Result};
use root::{Root, RootTemplate};
use std::sync::Arc;
use std::time::{Duration, Instant};
use synconce_testkit::manifest::{Manifest, diff};
use synconce_testkit::rig::{Survivors, Tape};

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
        let config = RunConfig::supervised(disk, MarkerPlace::Same);
        jobs.push(Job { role, name: name.to_owned(), config, make: Box::new(make) });
    };
    let shipped = Tool::Synconce(arguments.synconce.clone());
    let cuts = arguments.cuts.div_ceil(SHARE);
    for act in PackageAct::ALL {
        for disk in [DiskKind::Ext4, DiskKind::Xfs] {
            add(Role::Promise, act.name(), act, disk, &shipped, cuts);
        }
    }
    // The few cuts of the gate do not catch each of them every time.
    if let Some(program) = arguments.mutants.as_ref().filter(|_| !arguments.decisive) {
        for (mutant, act) in MUTANTS {
            let (program, shipped) = (program.clone(), arguments.synconce.clone());
            let tool = Tool::Mutant { program, mutant, shipped };
            let name = format!("{}, {mutant}", act.name());
            add(
                Role::Mutant,
                &name,
                act,
                DiskKind::Ext4,
                &tool,
                arguments.mutant_cuts.div_ceil(SHARE),
            );
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
    let until_broken = matches!(tool, Tool::Mutant { .. });
    let recordings = cuts.div_ceil(PER_RECORDING);
    let mut findings = Findings::default();
    for round in 0..recordings {
        let count = cuts * (round + 1) / recordings - cuts * round / recordings;
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003) + round as u64);
        // Another process that syncs would commit the journal for a mutant.
        let load = LoadKind::writing_back(round as u64);
        let began = Instant::now();
        let recorded = record(base, act, disk, tool, load)?;
        let mut found = cut_recorded(&recorded, act, tool, count, until_broken, &mut random)?;
        found.millis = began.elapsed().as_millis() as u64;
        findings.merge(found);
        if until_broken && findings.broken() > 0 {
            break;
        }
    }
    Ok(findings)
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
    count: usize,
    until_broken: bool,
    random: &mut fastrand::Rng,
) -> Result<Findings> {
    let log = recorded.tape.log()?;
    let at = |name| log.mark(name).ok_or_else(|| format!("the mark {name} is missing"));
    let all: Vec<usize> = log.places(at(mark::START)?, at(mark::END)?).collect();
    let end = at(mark::RETURNED)?;
    let returned = all.partition_point(|place| *place < end);
    let replay = recorded.tape.replay().up()?;
    let mut findings = Findings::default();
    for number in 0..count {
        // The first cut is right at the return, and every unflushed write is lost.
        let at = if number == 0 { returned } else { random.usize(0..all.len()) };
        let (survivors, granularity) = random_survivors(random);
        let survivors = if number == 0 { Survivors::None } else { survivors };
        let place = CutPoint { disk: all[at], other: 0, survivors, granularity };
        replay.cut(cut_at(place, place.disk))?;
        findings.cuts += 1;
        let is_returned = at >= returned;
        match mount(|| replay.mount()) {
            Ok(mounted) => {
                let root = Root::new(mounted.path(), &tool.shipped())?;
                let found = match act {
                    PackageAct::Install => {
                        // In containers no daily copy is made.
                        if number % 2 == 1 {
                            root.prepare("rm /var/backups/dpkg.status.0")?;
                        }
                        examine_install(recorded, &root, is_returned)?
                    }
                    PackageAct::SetUp | PackageAct::Undo => {
                        examine_set_up(recorded, &root, is_returned)?
                    }
                };
                if let Some((kind, detail)) = found {
                    findings.note(kind, || format!("{place:?}: {detail}"));
                }
            }
            Err(error) if is_returned => {
                findings.note("lost", || format!("{place:?}: {error}"));
            }
            Err(error) => findings.refuse(|| format!("{place:?}: {error}")),
        }
        if until_broken && findings.broken() > 0 {
            break;
        }
    }
    Ok(findings)
}

type PackageFinding = Option<(&'static str, String)>;

/// Checks that apt works, and that the next undo leaves the root as before the set-up.
fn examine_set_up(
    recorded: &RecordedAct,
    root: &Root,
    is_returned: bool,
) -> Result<PackageFinding> {
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
) -> Result<PackageFinding> {
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

fn differ(wanted: &Manifest, found: &Manifest) -> String {
    let all = diff(wanted, found);
    let shown: Vec<_> = all.iter().take(4).map(ToString::to_string).collect();
    format!("{} differences: {}", all.len(), shown.join("; "))
}
