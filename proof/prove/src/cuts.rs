//! Chooses where a recorded run is cut, and checks what is found at each cut.

use crate::Result;
use crate::check::{CutFinding, CutMoment, TreeFound, check, check_unmountable};
use crate::recording::{DiskRecording, RecordedRun, manifest, mark, paths};
use crate::work::is_durable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};
use synconce_testkit::manifest::{Manifest, diff};
use synconce_testkit::rig::{Cut, Granularity, Log, Mounted, Replay, Survivors};

/// One instant at which both disks are cut, and which unflushed writes survive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutPoint {
    pub disk: usize,
    pub other: usize,
    pub survivors: Survivors,
    pub granularity: Granularity,
}

/// The findings of all cuts of a row.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Findings {
    /// Number of cuts.
    pub cuts: usize,
    /// Number of findings of each kind.
    pub found: BTreeMap<&'static str, usize>,
    /// The first finding of each kind with which the promise was broken, and what differed.
    pub first: Option<String>,
    /// Number of disks that did not mount at a cut before the run had returned.
    pub refused: usize,
    /// The first such disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// How often something was lost that the tool does not report: uncommitted work in trees,
    /// before a note of the work had reached the disk.
    #[serde(skip_serializing_if = "is_none")]
    pub silent: usize,
    /// Time for all cuts, in milliseconds.
    pub millis: u64,
    /// Why no cut could be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

impl Findings {
    /// Returns how often the promise was broken.
    pub(crate) fn broken(&self) -> usize {
        self.found.values().sum()
    }

    fn add(&mut self, finding: CutFinding, place: CutPoint, detail: impl FnOnce() -> String) {
        self.cuts += 1;
        let detail = || format!("{place:?}: {}", detail());
        let name = match finding {
            CutFinding::Kept => return,
            CutFinding::Refused => return self.refuse(detail),
            CutFinding::Lost => "lost",
            CutFinding::Undetected => "undetected",
            CutFinding::FalseAlarm => "false alarm",
            CutFinding::PartLost => "part lost",
        };
        self.note(name, detail);
    }

    /// Counts a finding of this kind.
    pub(crate) fn note(&mut self, kind: &'static str, detail: impl FnOnce() -> String) {
        let count = self.found.entry(kind).or_default();
        *count += 1;
        if *count == 1 {
            let first = format!("{kind} at {}", detail());
            self.first =
                Some(self.first.take().map_or(first.clone(), |all| format!("{all}\n{first}")));
        }
    }

    /// Counts a disk that does not mount although nothing had been promised about it.
    pub(crate) fn refuse(&mut self, detail: impl FnOnce() -> String) {
        self.refused += 1;
        self.refusal.get_or_insert_with(|| format!("refused at {}", detail()));
    }

    /// Adds the findings of another recorded run.
    pub(crate) fn merge(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.refused += other.refused;
        self.silent += other.silent;
        self.millis += other.millis;
        for (name, count) in other.found {
            *self.found.entry(name).or_default() += count;
        }
        self.first = self.first.take().or(other.first);
        self.refusal = self.refusal.take().or(other.refusal);
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

/// Cuts `recorded` at `count` places; with `until_broken` stops at the first finding.
pub(crate) fn cut(
    recorded: &RecordedRun,
    count: usize,
    seed: u64,
    until_broken: bool,
) -> Result<Findings> {
    let began = Instant::now();
    let log = recorded.disk.log()?;
    let other_log = recorded.other.as_ref().map(|tape| tape.log()).transpose()?;
    let place = |name| log.mark(name).ok_or_else(|| format!("the mark {name} is missing"));
    let bounds = Bounds {
        start: place(mark::START)?,
        returned: place(mark::RETURNED)?,
        durable: log.mark(mark::DURABLE),
        end: place(mark::END)?,
    };
    let disk = recorded.disk.replay().up()?;
    let other = recorded.other.as_ref().map(|tape| tape.replay().up()).transpose()?;
    let control = tempfile::tempdir()?;
    let second = other.as_ref().map(|other| other.path());
    let paths = paths(recorded.config, recorded.work, disk.path(), second, control.path());
    let mut findings = Findings::default();
    for place in choose(&log, other_log.as_ref(), bounds, count, seed) {
        // A rig that cannot cut the disk is an error; a recovered disk that cannot be mounted
        // is a finding.
        disk.cut(cut_at(place, place.disk))?;
        let mounted = mount(|| disk.mount());
        let cut_other = |other: &_| Replay::cut(other, cut_at(place, place.other));
        other.as_ref().map(cut_other).transpose()?;
        let other = other.as_ref().map(Replay::mount);
        let (finding, detail) = match (mounted, other.transpose()) {
            (Ok(_), Ok(_)) => examine(recorded, &paths, bounds, place)?,
            (Err(error), _) | (_, Err(error)) => {
                (check_unmountable(bounds.moment(place)), format!("unmountable: {error}"))
            }
        };
        findings.add(finding, place, || detail);
        if until_broken && findings.broken() > 0 {
            break;
        }
    }
    findings.millis = began.elapsed().as_millis() as u64;
    Ok(findings)
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

pub(crate) fn cut_at(place: CutPoint, at: usize) -> Cut {
    Cut::at(at).survivors(place.survivors).granularity(place.granularity)
}

/// Checks the recovered disks, which are mounted at `paths`.
fn examine(
    recorded: &RecordedRun,
    paths: &crate::tool::Paths,
    bounds: Bounds,
    place: CutPoint,
) -> Result<(CutFinding, String)> {
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
    let finding = match check(bounds.moment(place), status, tree) {
        // Nothing was held, so no report is due.
        CutFinding::Undetected if !recorded.work.asks_for_syncs() => CutFinding::Kept,
        finding => finding,
    };
    let is_promised = bounds.durable.is_some_and(|durable| place.disk >= durable);
    let finding = match finding {
        CutFinding::Kept if is_promised && !is_durable(&paths.daemon()) => CutFinding::PartLost,
        other => other,
    };
    let detail = if finding == CutFinding::Kept { String::new() } else { detail(recorded, &found) };
    Ok((finding, format!("{status:?}, {tree:?} {detail}")))
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
    const SHOWN: usize = 3;
    let parts = recorded.parts.iter().zip(found);
    let differences: Vec<_> = parts.flat_map(|(part, found)| diff(&part.finished, found)).collect();
    let shown: Vec<String> = differences.iter().take(SHOWN).map(ToString::to_string).collect();
    let of = differences.first().and_then(|first| recorded.work.explain(first.path()));
    let of = of.map_or_else(String::new, |of| format!("; {of}"));
    format!("({} differences from the finished tree: {}{of})", differences.len(), shown.join("; "))
}

/// Chooses cuts in ascending order: over the whole run, and more of them where steps follow
/// each other quickly, which is at the start, before the return and after the return.
fn choose(
    log: &Log,
    other: Option<&Log>,
    bounds: Bounds,
    count: usize,
    seed: u64,
) -> Vec<CutPoint> {
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
            let (disk, other) = instants[random.usize(range.clone())];
            let (survivors, granularity) = random_survivors(&mut random);
            chosen.push(CutPoint { disk, other, survivors, granularity });
        }
    }
    chosen.sort_by_key(|place| (place.disk, place.other));
    chosen
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
