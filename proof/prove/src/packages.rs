//! apt and dpkg with the wrappers of `synconce setup apt`, and in the Debian installer: power cuts
//! of the set-up, of an install, of the undo and of the installer's last steps, in a small Debian
//! root with the machine's own dpkg and apt.
//!
//! After each cut of a set-up or an undo the programs work, and the next undo leaves the root as
//! before. After each cut of an install the root is as before, or as after; or `synconce status`
//! names the run, and the commands that it prints are typed and leave the root as an install that
//! was not cut. After each cut of the installer the root is as between two of the steps, of which
//! none that had returned is lost; or `synconce status --root` names the step. After the last hook
//! everything is there, also what a program outside of `in-target` has written.

mod root;

use crate::background_load::{BackgroundLoad, LoadKind};
use crate::campaign::{BrokenPromise, Campaign, Findings};
use crate::config::{DiskKind, MarkerPlace, RunConfig};
use crate::cuts::{cut_at, differ, mount, one_of};
use crate::recording::{mark, place, with_sync, without_sync};
use crate::row::{Job, Role};
use crate::tool::Tool;
use crate::{ProveArguments, Result};
use root::{Root, RootTemplate};
use std::sync::Arc;
use std::time::Duration;
use synconce_testkit::manifest::{Manifest, ManifestOptions};
use synconce_testkit::rig::Tape;

/// The mutants, and the act in which each is missed.
const MUTANTS: [(&str, PackageAct); 5] = [
    ("setup-unsynced", PackageAct::SetUp),
    ("setup-diversion-unsynced", PackageAct::SetUp),
    ("setup-directory-unsynced", PackageAct::Undo),
    ("commit-skipped", PackageAct::Install),
    ("commit-skipped", PackageAct::Installer),
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
    Installer,
}

impl PackageAct {
    const ALL: [Self; 4] = [Self::SetUp, Self::Install, Self::Undo, Self::Installer];

    fn name(self) -> &'static str {
        match self {
            Self::SetUp => "apt: set-up",
            Self::Install => "apt: install",
            Self::Undo => "apt: undo",
            Self::Installer => "apt: installer",
        }
    }

    /// Returns the scripts, which are recorded one after another.
    fn steps(self) -> &'static [&'static str] {
        match self {
            Self::SetUp => &["synconce setup apt --quiet"],
            Self::Install => &["apt-get install --yes beta gamma"],
            Self::Undo => &["synconce setup apt --undo --quiet"],
            Self::Installer => &[
                "in-target apt-get install --yes beta",
                "in-target apt-get install --yes gamma",
                "chroot /target sh -c 'echo late >/etc/late'; /usr/lib/synconce/unwrap",
            ],
        }
    }

    fn run(self, root: &Root, script: &str) -> Result<()> {
        if self == Self::Installer { root.install(script) } else { root.run(script) }
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
    /// After each step.
    after: Vec<Manifest>,
}

impl RecordedAct {
    fn finished(&self) -> &Manifest {
        self.after.last().unwrap_or(&self.before)
    }
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
    // The last hook of the installer calls sync(2).
    let syncs_all = act == PackageAct::Installer;
    let _alone = syncs_all.then(with_sync);
    let _shared = (!syncs_all).then(without_sync);
    let rig = disk.rig(384 << 20).record(true).up()?;
    let root = Root::new(rig.path(), tool)?;
    base.copy_to(&root)?;
    let untouched = root.manifest()?;
    if matches!(act, PackageAct::Install | PackageAct::Undo) {
        PackageAct::SetUp.steps().iter().try_for_each(|script| root.prepare(script))?;
    }
    root.sync()?;
    let before = root.manifest()?;
    let own = rig.path().join("background_load");
    std::fs::create_dir(&own)?;
    let background_load = BackgroundLoad::start(load, &own, &[root.path().join("usr")]);
    rig.disk().mark(mark::START)?;
    let mut after = Vec::new();
    for (number, script) in act.steps().iter().enumerate() {
        act.run(&root, script)?;
        rig.disk().mark(&returned(number))?;
        after.push(root.manifest()?);
    }
    std::thread::sleep(AFTER);
    drop(background_load);
    rig.disk().mark(mark::END)?;
    Ok(RecordedAct { tape: rig.finish()?, untouched, before, after })
}

/// Returns the mark after the step of this number.
fn returned(step: usize) -> String {
    format!("{} {step}", mark::RETURNED)
}

fn cut_recorded(
    recorded: &RecordedAct,
    act: PackageAct,
    tool: &Tool,
    campaign: Campaign,
) -> Result<Findings> {
    let log = recorded.tape.log()?;
    let all: Vec<usize> = log.places(place(&log, mark::START)?, place(&log, mark::END)?).collect();
    let ends = (0..act.steps().len()).map(|number| place(&log, &returned(number)));
    let ends = ends.collect::<Result<Vec<_>>>()?;
    let replay = recorded.tape.replay().up()?;
    let mut random = fastrand::Rng::with_seed(campaign.seed);
    campaign.at_each(0..campaign.count, |findings, number| {
        // The first cuts are right at the return of each step.
        let end = all.partition_point(|place| *place < ends[number % ends.len()]);
        let place = one_of(&all, 0..all.len(), (number / ends.len(), end), &mut random);
        replay.cut(cut_at(place, place.disk))?;
        let done = ends.iter().filter(|end| place.disk >= **end).count();
        let seen = match mount(|| replay.mount()) {
            Err(error) => Err(error.to_string()),
            Ok(mounted) => {
                let root = Root::new(mounted.path(), &tool.shipped())?;
                // In containers no daily copy is made.
                if act == PackageAct::Install && number % 2 == 1 {
                    root.prepare("rm /var/backups/dpkg.status.0")?;
                }
                Ok(match act {
                    PackageAct::Install => examine_install(recorded, &root, done)?,
                    PackageAct::Installer => examine_installer(recorded, &root, done)?,
                    PackageAct::SetUp | PackageAct::Undo => examine_set_up(recorded, &root, done)?,
                })
            }
        };
        findings.add(seen, done > 0, || format!("{place:?}"));
        Ok(())
    })
}

/// Checks that apt works, and that the next undo leaves the root as before the set-up.
fn examine_set_up(
    recorded: &RecordedAct,
    root: &Root,
    done: usize,
) -> Result<Option<BrokenPromise>> {
    let found = root.manifest()?;
    if done == 1 && found != *recorded.finished() {
        return Ok(Some(("lost", differ(recorded.finished(), &found))));
    }
    let script = "dpkg --version && apt-get --version && dpkg-divert --list";
    if let Err(error) = root.run(&format!("{script}\nsynconce setup apt --undo --quiet")) {
        return Ok(Some(("broken", error.to_string())));
    }
    let undone = root.manifest()?;
    let is_undone = undone == recorded.untouched;
    Ok((!is_undone).then(|| ("not undone", differ(&recorded.untouched, &undone))))
}

/// Checks that the root is as before or as after the install. Otherwise `status` has to name the
/// run as interrupted, and the command that it prints has to mend the root.
fn examine_install(
    recorded: &RecordedAct,
    root: &Root,
    done: usize,
) -> Result<Option<BrokenPromise>> {
    let found = root.manifest()?;
    let is_named = root.run("synconce status").is_err();
    let is_whole = found == *recorded.finished();
    match (done == 1, is_named) {
        (true, _) if !is_whole => {
            return Ok(Some(("lost", differ(recorded.finished(), &found))));
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
    let is_mended = mended == *recorded.finished();
    Ok((!is_mended).then(|| ("not mended", differ(recorded.finished(), &mended))))
}

/// Checks that the root is as after the last step that has returned, or as after the next one;
/// otherwise `status` has to name a step as interrupted.
fn examine_installer(
    recorded: &RecordedAct,
    root: &Root,
    done: usize,
) -> Result<Option<BrokenPromise>> {
    let found = root.manifest()?;
    let is_named = root.install("synconce status --root /target").is_err();
    if done == recorded.after.len() {
        let is_whole = found == *recorded.finished();
        let lost = || ("lost", differ(recorded.finished(), &found));
        return Ok((!is_whole).then(lost).or(is_named.then(|| ("false alarm", String::new()))));
    }
    if is_named {
        return Ok(None);
    }
    // Until the last hook returns, nothing is promised of what is written outside of `in-target`;
    // and the directory of the markers is there.
    let options = ManifestOptions::default().ignore("etc/late")?.ignore("var/lib/synconce")?;
    let earlier = done.checked_sub(1).map_or(&recorded.before, |last| &recorded.after[last]);
    let [found, earlier, later] = [&found, earlier, &recorded.after[done]]
        .map(|manifest| manifest.clone().without_ignored(&options));
    let is_between = found != earlier && found != later;
    Ok(is_between.then(|| ("undetected", differ(&later, &found))))
}
