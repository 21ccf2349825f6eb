//! Chooses where a recorded run is cut, and checks what is found at each cut.

use crate::Result;
use crate::campaign::{BrokenPromise, Campaign, Findings};
use crate::check::{CutMoment, PART_LOST, TreeFound, UNDETECTED, check};
use crate::config::DiskKind;
use crate::recording::{DiskRecording, RecordedRun, manifest, mark, paths, place};
use crate::work::is_durable;
use std::ops::Range;
use std::time::Duration;
use synconce_testkit::manifest::{Difference, Manifest, diff};
use synconce_testkit::rig::{Cut, Granularity, Log, Mounted, Recording, Replay, Survivors};

/// One instant at which both disks are cut, and which unflushed writes survive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutPoint {
    pub disk: usize,
    pub other: usize,
    pub survivors: Survivors,
    pub granularity: Granularity,
}

impl CutPoint {
    /// Chooses one of `instants`, and what survives a cut there.
    pub(crate) fn random(instants: &[(usize, usize)], random: &mut fastrand::Rng) -> Self {
        let (disk, other) = instants[random.usize(..instants.len())];
        let (survivors, granularity) = random_survivors(random);
        Self { disk, other, survivors, granularity }
    }
}

/// The positions of the marks in a log.
#[derive(Clone, Copy)]
struct Bounds {
    start: usize,
    returned: usize,
    durable: Option<usize>,
    end: usize,
}

impl Bounds {
    fn moment(self, place: CutPoint) -> CutMoment {
        if place.disk >= self.returned { CutMoment::Returned } else { CutMoment::Running }
    }
}

/// Cuts `recorded`.
pub(crate) fn cut(recorded: &RecordedRun, campaign: Campaign) -> Result<Findings> {
    let log = recorded.disk.log()?;
    let other_log = recorded.other.as_ref().map(|tape| tape.log()).transpose()?;
    let bounds = Bounds {
        start: place(&log, mark::START)?,
        returned: place(&log, mark::RETURNED)?,
        durable: log.mark(mark::DURABLE),
        end: place(&log, mark::END)?,
    };
    let disk = recorded.disk.replay().up()?;
    let other = recorded.other.as_ref().map(|tape| tape.replay().up()).transpose()?;
    let control = tempfile::tempdir()?;
    let second = other.as_ref().map(|other| other.path());
    let paths = paths(recorded.config, recorded.work, disk.path(), second, control.path());
    let places = choose(&log, other_log.as_ref(), bounds, campaign);
    campaign.at_each(places, |findings, place| {
        // A rig that cannot cut the disk is an error; a recovered disk that cannot be mounted
        // is a finding.
        disk.cut(cut_at(place, place.disk))?;
        let mounted = mount(|| disk.mount());
        let cut_other = |other: &_| Replay::cut(other, cut_at(place, place.other));
        other.as_ref().map(cut_other).transpose()?;
        let other = other.as_ref().map(Replay::mount);
        let seen = match (mounted, other.transpose()) {
            (Ok(_), Ok(_)) => Ok(examine(recorded, &paths, bounds, place)?),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        };
        // Before the return nothing was promised about the disk, and a command without the tool
        // leaves disks that do not mount as well.
        let is_promised = bounds.moment(place) == CutMoment::Returned;
        findings.add(seen, is_promised, || format!("{place:?}"));
        Ok(())
    })
}

/// Mounts, with retries: the kernel may not have released the device of the last cut yet.
pub(crate) fn mount<'a>(
    attempt: impl Fn() -> synconce_testkit::Result<Mounted<'a>>,
) -> synconce_testkit::Result<Mounted<'a>> {
    attempt().or_else(|_| {
        std::thread::sleep(Duration::from_millis(50));
        attempt()
    })
}

/// On how many disks one recording is cut at the same time, if rows are made one at a time.
pub(crate) const BESIDE: usize = 3;

/// Returns at most `beside` disks of this kind for the cuts of `recording`, not mounted.
pub(crate) fn replays(
    recording: &Recording,
    disk: DiskKind,
    campaign: Campaign,
    beside: usize,
) -> Result<Vec<Replay>> {
    // Before Linux 6.7 btrfs does not mount two disks with one UUID.
    let most = if disk == DiskKind::Btrfs { 1 } else { beside };
    let up = |_| recording.replay().up();
    Ok((0..campaign.count.clamp(1, most)).map(up).collect::<std::result::Result<_, _>>()?)
}

pub(crate) fn cut_at(place: CutPoint, at: usize) -> Cut {
    Cut::at(at).survivors(place.survivors).granularity(place.granularity)
}

/// Checks the recovered disks, which are mounted at `paths`.
fn examine(
    recorded: &RecordedRun,
    paths: &crate::tool::Paths,
    bounds: Bounds,
    place: CutPoint,
) -> Result<Option<BrokenPromise>> {
    let found = paths.disks().map(|disk| manifest(&recorded.tool, disk).unwrap_or_default());
    let found: Vec<_> = found.collect();
    let trees: Vec<_> =
        recorded.parts.iter().zip(&found).map(|(part, it)| compare(part, it)).collect();
    let parts = recorded.parts.iter().zip(&trees);
    let changed =
        parts.filter(|(_, tree)| **tree == TreeFound::Between).map(|(part, _)| &*part.point);
    let status = recorded.tool.status(recorded.config, paths, &changed.collect::<Vec<_>>())?;
    let first = trees[0];
    let tree = if trees.iter().all(|tree| *tree == first) { first } else { TreeFound::Between };
    let kind = check(bounds.moment(place), status, tree);
    // Nothing was held, so no report is due.
    let kind = kind.filter(|kind| *kind != UNDETECTED || recorded.work.asks_for_syncs());
    let is_promised = bounds.durable.is_some_and(|durable| place.disk >= durable);
    let is_lost = || is_promised && !is_durable(&paths.daemon());
    let kind = kind.or_else(|| is_lost().then_some(PART_LOST));
    Ok(kind.map(|kind| (kind, format!("{status:?}, {tree:?} ({})", detail(recorded, &found)))))
}

fn compare(part: &DiskRecording, found: &Manifest) -> TreeFound {
    if *found == part.finished {
        TreeFound::Finished
    } else if *found == part.before {
        TreeFound::Before
    } else {
        TreeFound::Between
    }
}

/// Describes the first differences from the finished trees.
fn detail(recorded: &RecordedRun, found: &[Manifest]) -> String {
    let parts = recorded.parts.iter().zip(found);
    let differences: Vec<_> = parts.flat_map(|(part, found)| diff(&part.finished, found)).collect();
    let of = differences.first().and_then(|first| recorded.work.explain(first.path()));
    described(&differences) + &of.map_or_else(String::new, |of| format!("; {of}"))
}

/// Describes the first differences of `found` from the finished tree.
pub(crate) fn differ(finished: &Manifest, found: &Manifest) -> String {
    described(&diff(finished, found))
}

fn described(differences: &[Difference]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = differences.iter().take(SHOWN).map(ToString::to_string).collect();
    format!("{} differences from the finished tree: {}", differences.len(), shown.join("; "))
}

/// Chooses cuts in ascending order: over the whole run, and more of them where steps follow
/// each other quickly, which is at the start, before the return and after the return.
fn choose(log: &Log, other: Option<&Log>, bounds: Bounds, campaign: Campaign) -> Vec<CutPoint> {
    let Campaign { count, seed, .. } = campaign;
    let mut random = fastrand::Rng::with_seed(seed);
    let instants = instants(log, other, bounds.start..bounds.end);
    let returned = instants.partition_point(|(disk, _)| *disk < bounds.returned);
    let near = 40.min(instants.len());
    let parts = [
        (0..instants.len(), count * 3 / 8),
        (0..near, count / 8),
        (returned.saturating_sub(near)..returned, count / 4),
        (returned..instants.len(), count - count * 3 / 8 - count / 8 - count / 4),
    ];
    let mut chosen = Vec::new();
    for (range, wanted) in parts.into_iter().filter(|(range, _)| !range.is_empty()) {
        for _ in 0..wanted {
            chosen.push(CutPoint::random(&instants[range.clone()], &mut random));
        }
    }
    chosen.sort_by_key(|place| (place.disk, place.other));
    chosen
}

/// Returns a cut of one disk, at one of `range` of its places `all`. The first cut of a recording
/// is right at the return, and loses every unflushed write.
pub(crate) fn one_of(
    all: &[usize],
    range: Range<usize>,
    (number, returned): (usize, usize),
    random: &mut fastrand::Rng,
) -> CutPoint {
    let at = if number == 0 { returned } else { random.usize(range) };
    let (survivors, granularity) = random_survivors(random);
    let survivors = if number == 0 { Survivors::None } else { survivors };
    CutPoint { disk: all[at], other: 0, survivors, granularity }
}

/// Chooses which unflushed writes survive a cut, and whether writes are split into blocks.
pub(crate) fn random_survivors(random: &mut fastrand::Rng) -> (Survivors, Granularity) {
    let share = [0.2, 0.5, 0.8][random.usize(..3)];
    let survivors = match random.u8(..4) {
        0 => Survivors::None,
        1 => Survivors::All,
        _ => Survivors::Share { seed: random.u64(..), share },
    };
    let granularity = match random.u8(..4) {
        0 => Granularity::Request,
        _ => Granularity::Block,
    };
    (survivors, granularity)
}

/// Returns every instant of a range of `log` at which a cut can make a difference, as positions
/// in both logs.
pub(crate) fn instants(log: &Log, other: Option<&Log>, range: Range<usize>) -> Vec<(usize, usize)> {
    let nanos = |log: &Log, place: usize| log.events()[place.saturating_sub(1)].nanos;
    let mut all: Vec<(usize, usize)> = log
        .places(range.start, range.end)
        .map(|place| (place, other.map_or(0, |other| other.at_nanos(nanos(log, place)))))
        .collect();
    if let Some(other) = other {
        let start = other.at_nanos(nanos(log, range.start));
        let end = other.at_nanos(nanos(log, range.end));
        let places = other.places(start, end);
        all.extend(places.map(|place| (log.at_nanos(nanos(other, place)), place)));
    }
    all.sort_unstable();
    all.dedup();
    all
}
