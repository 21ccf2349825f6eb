//! Cuts recorded holds.

use super::fixture::{HoldFixture, mounted};
use super::judge::judge;
use super::recording::{Marks, RecordedHold};
use crate::Result;
use crate::campaign::{BrokenPromise, Campaign, Findings, Seen};
use crate::cuts::{CutPoint, cut_at, instants, random_survivors};
use synconce_testkit::rig::{Log, Replay};

/// Instants before and after the end of a hold from which cuts are chosen more often: the
/// syncs and the removal of the marker follow each other there.
const NEAR: usize = 60;

/// Replays of the recorded disks.
pub(super) struct Replays {
    disk: Replay,
    other: Option<Replay>,
}

impl Replays {
    /// Sets the disks up, not mounted.
    pub(super) fn up(fixture: &HoldFixture, recorded: &RecordedHold) -> Result<Self> {
        let disk = recorded.disk.replay().at(fixture.disk()).up()?;
        let other = recorded.other.as_ref();
        let other = other.map(|tape| tape.replay().at(fixture.other()).up()).transpose()?;
        Ok(Self { disk, other })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Replay> {
        std::iter::once(&self.disk).chain(&self.other)
    }

    /// Makes these the disks after a power cut.
    pub(super) fn cut(&self, place: CutPoint) -> Result<()> {
        self.disk.cut(cut_at(place, place.disk))?;
        self.other.as_ref().map(|other| other.cut(cut_at(place, place.other))).transpose()?;
        Ok(())
    }

    /// Cuts, mounts, looks by `look`, and unmounts. The inner error is that of a file system
    /// that does not recover.
    pub(super) fn look(
        &self,
        fixture: &HoldFixture,
        place: CutPoint,
        look: impl FnOnce() -> Result<Option<BrokenPromise>>,
    ) -> Result<Seen> {
        self.cut(place)?;
        let mounted = match mounted(self.all()) {
            Ok(mounted) => mounted,
            Err(error) => return Ok(Err(error)),
        };
        // If the disk kept what must not survive, reading fails with errors.
        let seen = look().unwrap_or_else(|error| Some(("unreadable", error.to_string())));
        if seen.is_some() {
            // The disk must be free for the next cut.
            fixture.release()?;
        }
        for disk in mounted {
            if let Err(error) = disk.unmount() {
                // A mount or a process of the hold keeps the disk busy.
                return Err(format!("{seen:?}, and then: {error}").into());
            }
        }
        Ok(Ok(seen))
    }
}

/// Cuts `recorded`.
pub(super) fn cut(
    fixture: &HoldFixture,
    recorded: &RecordedHold,
    campaign: Campaign,
) -> Result<Findings> {
    let log = recorded.disk.log()?;
    let other = recorded.other.as_ref().map(|tape| tape.log()).transpose()?;
    let marks = Marks::find(&log)?;
    let replays = Replays::up(fixture, recorded)?;
    let places = choose(&log, other.as_ref(), &marks, campaign);
    campaign.at_each(places.into_iter().enumerate(), |findings, (index, place)| {
        let moment = marks.moment(place.disk);
        let at = || format!("{moment:?} at {place:?}");
        let seen = replays.look(fixture, place, || judge(fixture, moment, index % 2 == 0));
        findings.add(seen.map_err(|error| format!("{}: {error}", at()))?, moment.is_off, at);
        Ok(())
    })
}

/// Chooses cuts in ascending order: over everything, while a hold is in force, and where it
/// ends.
fn choose(log: &Log, other: Option<&Log>, marks: &Marks, campaign: Campaign) -> Vec<CutPoint> {
    let Campaign { count, seed, .. } = campaign;
    let mut random = fastrand::Rng::with_seed(seed);
    let all = instants(log, other, marks.start..marks.end);
    let at = |place: usize| all.partition_point(|(disk, _)| *disk < place);
    let mut chosen = Vec::new();
    for index in 0..count {
        let hold = &marks.holds[random.usize(..marks.holds.len())];
        let (from, to) = (at(hold.start), at(hold.end));
        let range = match index % 8 {
            0 => 0..all.len(),
            1 | 2 => from..to,
            3 | 4 => to..all.len().min(to + NEAR),
            _ => from.max(to.saturating_sub(NEAR))..to,
        };
        if range.is_empty() {
            continue;
        }
        let (disk, other) = all[random.usize(range)];
        let (survivors, granularity) = random_survivors(&mut random);
        chosen.push(CutPoint { disk, other, survivors, granularity });
    }
    chosen.sort_by_key(|place| (place.disk, place.other));
    chosen
}
