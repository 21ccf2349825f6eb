//! Cuts recorded holds.

use super::fixture::{HoldFixture, mounted};
use super::judge::judge;
use super::recording::{Marks, RecordedHold};
use crate::Result;
use crate::campaign::{BrokenPromise, Campaign, Findings, Seen};
use crate::cuts::{CutPoint, cut_at, instants};
use std::iter;
use synconce_testkit::rig::{Log, Mounted, Replay};

/// Instants before and after the end of a hold from which cuts are chosen more often: the
/// syncs and the removal of the marker follow each other there.
const NEAR: usize = 60;

/// Replays of the recorded disks.
pub(super) struct Replays<'a> {
    fixture: &'a HoldFixture,
    recorded: &'a RecordedHold,
    /// The disk of the databases, and that of the marker if it is another.
    disks: Vec<Replay>,
}

impl<'a> Replays<'a> {
    /// Sets the disks up, not mounted.
    pub(super) fn up(fixture: &'a HoldFixture, recorded: &'a RecordedHold) -> Result<Self> {
        let mut replays = Self { fixture, recorded, disks: Vec::new() };
        replays.renew()?;
        Ok(replays)
    }

    /// Takes the disks down, also while they are in use, and sets them up again.
    fn renew(&mut self) -> Result<()> {
        self.disks.clear();
        let points = [self.fixture.disk(), self.fixture.other()];
        let tapes = iter::once(&self.recorded.disk).chain(&self.recorded.other);
        for (tape, point) in tapes.zip(points) {
            self.disks.push(tape.replay().at(point).up()?);
        }
        Ok(())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Replay> {
        self.disks.iter()
    }

    /// Makes these the disks after a power cut.
    pub(super) fn cut(&self, place: CutPoint) -> Result<()> {
        for (disk, at) in self.disks.iter().zip([place.disk, place.other]) {
            disk.cut(cut_at(place, at))?;
        }
        Ok(())
    }

    /// Cuts, mounts, looks by `look`, and unmounts. The inner error is that of a file system
    /// that does not recover.
    pub(super) fn look(
        &mut self,
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
        // After a broken promise the hold may be in force.
        let released = if seen.is_some() { self.fixture.release() } else { Ok(()) };
        let unmounted: Vec<_> = mounted.into_iter().map(Mounted::unmount).collect();
        let mut ends = iter::once(released).chain(unmounted.into_iter().map(|it| Ok(it?)));
        match (seen, ends.find_map(Result::err)) {
            (seen, None) => Ok(Ok(seen)),
            // A mount or a process of the hold keeps the disk busy.
            (None, Some(error)) => Err(error),
            (Some((kind, detail)), Some(error)) => {
                self.renew()?;
                Ok(Ok(Some((kind, format!("{detail}, and then: {error}")))))
            }
        }
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
    let mut replays = Replays::up(fixture, recorded)?;
    let places = choose(&log, other.as_ref(), &marks, campaign);
    campaign.at_each(places.into_iter().enumerate(), |findings, (index, place)| {
        let moment = marks.moment(place.disk);
        let at = || format!("{moment:?} at {place:?}");
        let seen = replays.look(place, || judge(fixture, moment, index % 2 == 0));
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
        if !range.is_empty() {
            chosen.push(CutPoint::random(&all[range], &mut random));
        }
    }
    chosen.sort_by_key(|place| (place.disk, place.other));
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DiskKind, MarkerPlace};
    use crate::tool::Tool;
    use std::fs::File;
    use synconce_testkit::isolation::isolated;
    use synconce_testkit::rig::{Granularity, Survivors};

    #[test]
    fn a_broken_promise_that_keeps_its_disk_in_use_is_a_finding_and_the_next_cut_is_made() {
        let test = || {
            let tool = Tool::Synconce("/none".into());
            let fixture = HoldFixture::new(&tool, MarkerPlace::Same).unwrap();
            let rig = DiskKind::Ext4.rig(64 << 20).record(true).at(fixture.disk()).up().unwrap();
            rig.disk().mark("end").unwrap();
            let recorded = RecordedHold { disk: rig.finish().unwrap(), other: None };
            let disk = recorded.disk.log().unwrap().mark("end").unwrap();
            let (survivors, granularity) = (Survivors::All, Granularity::Request);
            let place = CutPoint { disk, other: 0, survivors, granularity };
            let mut replays = Replays::up(&fixture, &recorded).unwrap();
            let mut open = None;
            let seen = replays.look(place, || {
                open = Some(File::create(fixture.disk().join("open"))?);
                Ok(Some(("broken", "a database".to_owned())))
            });
            let (kind, detail) = seen.unwrap().unwrap().unwrap();
            assert_eq!(kind, "broken");
            assert!(detail.starts_with("a database, and then: cannot unmount "), "{detail}");
            drop(open);
            assert_eq!(replays.look(place, || Ok(None)).unwrap(), Ok(None));
        };
        isolated(test, |_, test| test());
    }
}
