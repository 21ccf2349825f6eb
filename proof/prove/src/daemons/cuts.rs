//! Cuts a recorded script, and counts what is found.

use super::engine::DatabaseSyncs;
use super::fixture::IMAGES;
use super::judge::{CutVerdict, RequiredAtCut, judge};
use super::recording::{RecordedDaemon, Subject, mark};
use super::script::{Images, ScriptStep, StepAct, states};
use super::unflushed;
use super::world::World;
use crate::Result;
use crate::campaign::Campaign;
use crate::cuts::{CutPoint, cut_at, instants, mount, random_survivors};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use synconce_testkit::patiently;
use synconce_testkit::rig::{Cut, Log, Mounted, Replay, Survivors};

/// One of so many cuts is made while the daemon and the hold are stopped.
const STOPPED: usize = 12;
/// One of so many cuts of builds is made when a build has returned, and loses every unflushed
/// write. The next build syncs the disk as soon as it unmounts an overlay.
const RETURNED: usize = 3;
/// So many cuts of builds have one at the return of each build.
pub(super) const EACH_BUILD: usize = RETURNED * IMAGES;
/// How long the disk may stay busy after a cut was judged.
const UNMOUNTING: Duration = Duration::from_secs(60);

/// The findings of the cuts of a row.
#[derive(Clone, Debug, Default)]
pub(super) struct CutTally {
    pub cuts: usize,
    pub kept: usize,
    pub wiped: usize,
    pub broken: usize,
    pub silent: usize,
    /// How often something was broken in each step of the judgement.
    pub kinds: BTreeMap<&'static str, usize>,
    /// The first finding of each kind, with the place of the cut.
    pub first: BTreeMap<&'static str, String>,
}

impl CutTally {
    fn add(&mut self, verdict: CutVerdict, place: impl FnOnce() -> String) {
        self.cuts += 1;
        let (kind, detail) = match verdict {
            CutVerdict::Kept => return self.kept += 1,
            CutVerdict::Wiped => return self.wiped += 1,
            CutVerdict::Broken(kind, detail) => {
                self.broken += 1;
                (kind, detail)
            }
            CutVerdict::Silent(detail) => {
                self.silent += 1;
                ("silent", detail)
            }
        };
        *self.kinds.entry(kind).or_default() += 1;
        self.first.entry(kind).or_insert_with(|| format!("{}: {detail}", place()));
    }

    /// Adds the findings of another recording.
    pub(super) fn merge(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.kept += other.kept;
        self.wiped += other.wiped;
        self.broken += other.broken;
        self.silent += other.silent;
        for (kind, count) in other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        for (kind, first) in other.first {
            self.first.entry(kind).or_insert(first);
        }
    }
}

/// The positions of the marks in the log of the daemon's disk.
struct Marks {
    /// The start, and the end of each step.
    steps: Vec<usize>,
    /// While the daemon and the hold are stopped.
    stopped: Range<usize>,
    /// The end of each build; empty if `script` is not one of builds.
    returned: Vec<usize>,
    end: usize,
}

impl Marks {
    fn find(log: &Log, way: DatabaseSyncs) -> Result<Self> {
        let script = way.script();
        let place = |name: &str| crate::recording::place(log, name);
        let mut steps = vec![place(mark::START)?];
        for index in 0..script.len() {
            steps.push(place(&mark::step(index))?);
        }
        let stopped = place(mark::STOPPED)?..place(mark::STARTING)?;
        let is_build = |step: &ScriptStep| {
            matches!(way, DatabaseSyncs::Steps(_))
                && matches!(step, ScriptStep::Act(StepAct::Add(_)))
        };
        let ends = script.iter().zip(&steps[1..]);
        let returned = ends.filter(|(step, _)| is_build(step)).map(|(_, end)| *end).collect();
        Ok(Self { steps, stopped, returned, end: place(mark::END)? })
    }

    /// Returns how many steps had ended.
    fn done(&self, at: usize) -> usize {
        self.steps.iter().filter(|step| **step <= at).count().saturating_sub(1)
    }

    fn moment<'a>(
        &self,
        at: usize,
        script: &[ScriptStep],
        states: &'a [Images],
    ) -> RequiredAtCut<'a> {
        let done = self.done(at);
        let images = [&states[done], states.get(done + 1).unwrap_or(&states[done])];
        let began = script[..done].iter().rposition(|step| !matches!(step, ScriptStep::Act(_)));
        let earlier = &states[began.map_or(0, |step| step + 1)..=done];
        RequiredAtCut { images, earlier, stopped: self.stopped.contains(&at) }
    }
}

/// Makes the cuts of `campaign` in `recorded`, and judges each.
pub(super) fn cut(
    subject: &Subject<'_>,
    world: &World,
    recorded: &RecordedDaemon,
    campaign: Campaign,
) -> Result<CutTally> {
    let log = recorded.disk.log()?;
    let other_log = recorded.other.as_ref().map(|tape| tape.log()).transpose()?;
    let script = subject.way.script();
    let marks = Marks::find(&log, subject.way)?;
    let states = states(script, subject.way.has_hold() && !subject.engine.keeps_images());
    let disk = recorded.disk.replay().at(world.disk()).up()?;
    let other = recorded.other.as_ref();
    let other = other.map(|tape| tape.replay().at(world.other()).up()).transpose()?;
    let mut tally = CutTally::default();
    let places = match subject.unflushed {
        Some(file) => {
            let range = marks.steps[0]..marks.end;
            unflushed::choose(
                &log,
                &extents(subject, world, &disk, file, marks.end)?,
                range,
                campaign,
            )?
        }
        None => choose(&log, other_log.as_ref(), &marks, campaign),
    };
    for place in places {
        let verdict = match mounted(&disk, other.as_ref(), place)? {
            Err(error) => CutVerdict::Broken("unmountable", error),
            Ok(mounted) => {
                world.boot()?;
                let verdict = judge(subject, world, &marks.moment(place.disk, script, &states));
                subject.halt(world)?;
                mounted.into_iter().try_for_each(unmount)?;
                verdict
            }
        };
        let step = script.get(marks.done(place.disk)).unwrap_or(&ScriptStep::Settle);
        tally.add(verdict, || format!("in {step:?} at {place:?}"));
    }
    Ok(tally)
}

/// Returns where `file` of the daemon is on `disk` at the place `end`.
fn extents(
    subject: &Subject<'_>,
    world: &World,
    disk: &Replay,
    file: &Path,
    end: usize,
) -> Result<Vec<Range<u64>>> {
    let mounted = disk.mounted(Cut::at(end).survivors(Survivors::All))?;
    let extents = unflushed::extents(&subject.engine.root(world).join(file));
    unmount(mounted)?;
    extents
}

/// Cuts and mounts both disks. The inner error is that of a file system that does not recover.
fn mounted<'a>(
    disk: &'a Replay,
    other: Option<&'a Replay>,
    place: CutPoint,
) -> Result<std::result::Result<Vec<Mounted<'a>>, String>> {
    disk.cut(cut_at(place, place.disk))?;
    other.map(|other| other.cut(cut_at(place, place.other))).transpose()?;
    let all = std::iter::once(disk).chain(other).map(|replay| mount(|| replay.mount()));
    let all = all.collect::<std::result::Result<Vec<_>, _>>();
    Ok(all.map_err(|error| error.to_string()))
}

/// Unmounts a disk. The kernel releases the mounts of ended namespaces with a delay.
fn unmount(mounted: Mounted<'_>) -> Result<()> {
    let path = mounted.path().to_owned();
    drop(mounted);
    let is_mounted = || {
        let mounts = synconce_probe::mounts::read("self").unwrap_or_default();
        if mounts.iter().any(|mount| mount.point == path) {
            let flags = rustix::mount::UnmountFlags::empty();
            return rustix::mount::unmount(&path, flags).is_err();
        }
        false
    };
    crate::recording::wait_until("the disk is free", patiently(UNMOUNTING), || !is_mounted())
}

/// Chooses cuts in ascending order: about as many in each step, and some while all is stopped or
/// when a build has returned.
fn choose(log: &Log, other: Option<&Log>, marks: &Marks, campaign: Campaign) -> Vec<CutPoint> {
    let mut random = fastrand::Rng::with_seed(campaign.seed);
    let all = instants(log, other, marks.steps[0]..marks.end);
    let at = |place: usize| all.partition_point(|(disk, _)| *disk < place);
    let mut chosen = Vec::new();
    for index in 0..campaign.count {
        let step = (index + random.usize(..marks.steps.len())) % marks.steps.len();
        let to = marks.steps.get(step + 1).copied().unwrap_or(marks.end);
        let mut range = at(marks.steps[step])..at(to);
        if index % STOPPED == 0 {
            range = at(marks.stopped.start)..at(marks.stopped.end);
        }
        let (mut survivors, granularity) = random_survivors(&mut random);
        let build = index / RETURNED % marks.returned.len().max(1);
        if index % RETURNED == 1
            && let Some(returned) = marks.returned.get(build)
        {
            survivors = Survivors::None;
            range = at(*returned)..(at(*returned) + 1).min(all.len());
        }
        if range.is_empty() {
            range = 0..all.len();
        }
        let (disk, other) = all[random.usize(range)];
        chosen.push(CutPoint { disk, other, survivors, granularity });
    }
    chosen.sort_by_key(|place| (place.disk, place.other));
    chosen
}
