//! Where a take is cut, and what is found there.

use crate::Result;
use crate::judge::{Finding, Moment, Tree, judge, judge_unmountable};
use crate::take::{Part, Take, manifest, mark, places};
use crate::work::is_durable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use synconce_testkit::manifest::{Manifest, diff};
use synconce_testkit::rig::{Cut, Granularity, Log, Mounted, Replay, Survivors};

/// A cut of both disks at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub disk: usize,
    pub other: usize,
    pub survivors: Survivors,
    pub granularity: Granularity,
}

/// What the cuts of a take found.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Findings {
    /// How many cuts were made.
    pub cuts: usize,
    /// How many of each kind.
    pub found: BTreeMap<&'static str, usize>,
    /// The first cut of each kind at which the promise was broken, with what differed.
    pub first: Option<String>,
    /// How many disks did not mount before the run had returned.
    pub refused: usize,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// How often what was not committed was lost before the disk had heard of it, so that nothing
    /// could be said: trees alone.
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
    /// How often the promise was broken.
    pub(crate) fn broken(&self) -> usize {
        self.found.values().sum()
    }

    fn add(&mut self, finding: Finding, place: Place, detail: impl FnOnce() -> String) {
        self.cuts += 1;
        let detail = || format!("{place:?}: {}", detail());
        let name = match finding {
            Finding::Kept => return,
            Finding::Refused => return self.refuse(detail),
            Finding::Lost => "lost",
            Finding::Undetected => "undetected",
            Finding::FalseAlarm => "false alarm",
            Finding::SurvivorLost => "survivor lost",
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

    /// Counts a disk that does not mount, of which nothing had been promised.
    pub(crate) fn refuse(&mut self, detail: impl FnOnce() -> String) {
        self.refused += 1;
        self.refusal.get_or_insert_with(|| format!("refused at {}", detail()));
    }

    /// Takes the findings of another take in.
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

/// The places of interest in a log.
#[derive(Clone, Copy)]
struct Bounds {
    start: usize,
    returned: usize,
    served: Option<usize>,
    end: usize,
}

impl Bounds {
    fn moment(self, place: Place) -> Moment {
        if place.disk >= self.returned { Moment::Returned } else { Moment::Running }
    }
}

/// Cuts `take` at `count` places; with `until_broken` stops at the first finding.
pub(crate) fn cut(take: &Take, count: usize, seed: u64, until_broken: bool) -> Result<Findings> {
    let began = Instant::now();
    let log = take.disk.log()?;
    let other_log = take.other.as_ref().map(|tape| tape.log()).transpose()?;
    let place = |name| log.mark(name).ok_or_else(|| format!("the mark {name} is missing"));
    let bounds = Bounds {
        start: place(mark::START)?,
        returned: place(mark::RETURNED)?,
        served: log.mark(mark::SERVED),
        end: place(mark::END)?,
    };
    let disk = take.disk.replay().up()?;
    let other = take.other.as_ref().map(|tape| tape.replay().up()).transpose()?;
    let control = tempfile::tempdir()?;
    let second = other.as_ref().map(|other| other.path());
    let places = places(take.scene, take.work, disk.path(), second, control.path());
    let mut findings = Findings::default();
    for place in choose(&log, other_log.as_ref(), bounds, count, seed) {
        // A disk that cannot be cut is no finding, but one that cannot be mounted then is.
        disk.cut(cut_at(place, place.disk))?;
        let mounted = mount(|| disk.mount());
        let cut_other = |other: &_| Replay::cut(other, cut_at(place, place.other));
        other.as_ref().map(cut_other).transpose()?;
        let other = other.as_ref().map(Replay::mount);
        let (finding, detail) = match (mounted, other.transpose()) {
            (Ok(_), Ok(_)) => look(take, &places, bounds, place)?,
            (Err(error), _) | (_, Err(error)) => {
                (judge_unmountable(bounds.moment(place)), format!("unmountable: {error}"))
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

/// Mounts; a device that is still being let go by the last cut is given a moment.
pub(crate) fn mount<'a>(
    attempt: impl Fn() -> synconce_testkit::Result<Mounted<'a>>,
) -> synconce_testkit::Result<Mounted<'a>> {
    attempt().or_else(|_| {
        std::thread::sleep(Duration::from_millis(50));
        attempt()
    })
}

pub(crate) fn cut_at(place: Place, at: usize) -> Cut {
    Cut::at(at).survivors(place.survivors).granularity(place.granularity)
}

/// Judges the recovered disks, which are mounted at `places`.
fn look(
    take: &Take,
    places: &crate::tool::Places,
    bounds: Bounds,
    place: Place,
) -> Result<(Finding, String)> {
    let found = places.disks().map(|disk| manifest(&take.tool, disk).unwrap_or_default());
    let found: Vec<_> = found.collect();
    let trees: Vec<_> = take.parts.iter().zip(&found).map(|(part, it)| compare(part, it)).collect();
    let parts = take.parts.iter().zip(&trees);
    let changed = parts.filter(|(_, tree)| **tree == Tree::Between).map(|(part, _)| &*part.point);
    let status = take.tool.status(take.scene, places, &changed.collect::<Vec<_>>())?;
    let first = trees[0];
    let tree = if trees.iter().all(|tree| *tree == first) { first } else { Tree::Between };
    let finding = match judge(bounds.moment(place), status, tree) {
        // Nothing was held.
        Finding::Undetected if !take.work.asks_for_syncs() => Finding::Kept,
        finding => finding,
    };
    let served = bounds.served.is_some_and(|served| place.disk >= served);
    let finding = match finding {
        Finding::Kept if served && !is_durable(&places.daemon()) => Finding::SurvivorLost,
        other => other,
    };
    let detail = if finding == Finding::Kept { String::new() } else { detail(take, &found) };
    Ok((finding, format!("{status:?}, {tree:?} {detail}")))
}

fn compare(part: &Part, found: &Manifest) -> Tree {
    if *found == part.finished {
        Tree::Finished
    } else if *found == part.before {
        Tree::Before
    } else {
        Tree::Between
    }
}

/// The first differences from the finished trees.
fn detail(take: &Take, found: &[Manifest]) -> String {
    const SHOWN: usize = 3;
    let parts = take.parts.iter().zip(found);
    let differences: Vec<_> = parts.flat_map(|(part, found)| diff(&part.finished, found)).collect();
    let shown: Vec<String> = differences.iter().take(SHOWN).map(ToString::to_string).collect();
    let of = differences.first().and_then(|first| take.work.explain(first.path()));
    let of = of.map_or_else(String::new, |of| format!("; {of}"));
    format!("({} differences from the finished tree: {}{of})", differences.len(), shown.join("; "))
}

/// Chooses places, in ascending order: over the whole run, and more where steps follow each other
/// quickly: at its start, before its return, and after it.
fn choose(log: &Log, other: Option<&Log>, bounds: Bounds, count: usize, seed: u64) -> Vec<Place> {
    let mut random = fastrand::Rng::with_seed(seed);
    let instants = instants(log, other, bounds);
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
            let (survivors, granularity) = fate(&mut random);
            chosen.push(Place { disk, other, survivors, granularity });
        }
    }
    chosen.sort_by_key(|place| (place.disk, place.other));
    chosen
}

/// What of the unflushed writes survives a cut.
pub(crate) fn fate(random: &mut fastrand::Rng) -> (Survivors, Granularity) {
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

/// Every instant at which a cut can make a difference, as places of both logs.
fn instants(log: &Log, other: Option<&Log>, bounds: Bounds) -> Vec<(usize, usize)> {
    let nanos = |log: &Log, place: usize| log.events()[place.saturating_sub(1)].nanos;
    let mut all: Vec<(usize, usize)> = log
        .places(bounds.start, bounds.end)
        .map(|place| (place, other.map_or(0, |other| other.at_nanos(nanos(log, place)))))
        .collect();
    if let Some(other) = other {
        let start = other.at_nanos(nanos(log, bounds.start));
        let end = other.at_nanos(nanos(log, bounds.end));
        let places = other.places(start, end);
        all.extend(places.map(|place| (log.at_nanos(nanos(other, place)), place)));
    }
    all.sort_unstable();
    all.dedup();
    all
}
