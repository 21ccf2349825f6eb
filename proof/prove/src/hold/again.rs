//! Cuts a recovery: the disk of one power cut is recorded while it is recovered, cut again, and
//! recovered again.

use super::cuts::Replays;
use super::fixture::{HeldContent, HoldFixture, failed, mounted};
use super::judge::{misplaced, put_back};
use super::recording::{Marks, RecordedHold, mark, record_recovery};
use crate::Result;
use crate::background_load::LoadKind;
use crate::campaign::{BrokenPromise, Campaign, Findings};
use crate::config::DiskKind;
use crate::cuts::{CutPoint, instants, random_survivors};
use crate::recording::place;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::patiently;

/// How often a first cut is tried until it leaves a marker.
const TRIES: usize = 40;
const COPYING: Duration = Duration::from_secs(120);

/// Cuts `recorded` once where a marker is left, and the recovery from that.
pub(super) fn cut(
    fixture: &HoldFixture,
    recorded: &RecordedHold,
    disk: DiskKind,
    campaign: Campaign,
) -> Result<Findings> {
    let mut random = fastrand::Rng::with_seed(campaign.seed);
    let (images, first) = interrupted(fixture, recorded, &mut random)?;
    let mut before = HeldContent::new();
    let load = LoadKind::of(random.u64(..4));
    let recovery = record_recovery(fixture, disk, &images, load, || {
        before = fixture.content()?;
        fixture.must("recover")
    })?;
    let log = recovery.disk.log()?;
    let other = recovery.other.as_ref().map(|tape| tape.log()).transpose()?;
    let range = place(&log, mark::START)?..place(&log, mark::END)?;
    let all = instants(&log, other.as_ref(), range);
    let replays = Replays::up(fixture, &recovery)?;
    let mut places: Vec<_> = (0..campaign.count).map(|_| all[random.usize(..all.len())]).collect();
    places.sort_unstable();
    campaign.at_each(places, |findings, (disk, other)| {
        let (survivors, granularity) = random_survivors(&mut random);
        let place = CutPoint { disk, other, survivors, granularity };
        let at = || format!("{place:?} after {first:?}");
        let seen = replays.look(fixture, place, || judge(fixture, &before));
        findings.add(seen.map_err(|error| format!("{}: {error}", at()))?, true, at);
        Ok(())
    })
}

/// Returns images of the disks after a cut that leaves a marker, and the place of the cut.
fn interrupted(
    fixture: &HoldFixture,
    recorded: &RecordedHold,
    random: &mut fastrand::Rng,
) -> Result<(Vec<PathBuf>, CutPoint)> {
    let log = recorded.disk.log()?;
    let other = recorded.other.as_ref().map(|tape| tape.log()).transpose()?;
    let marks = Marks::find(&log)?;
    let hold = &marks.holds[random.usize(..marks.holds.len())];
    let all = instants(&log, other.as_ref(), hold.clone());
    let replays = Replays::up(fixture, recorded)?;
    for _ in 0..TRIES {
        let (disk, other) = all[random.usize(..all.len())];
        let (survivors, granularity) = random_survivors(random);
        let place = CutPoint { disk, other, survivors, granularity };
        replays.cut(place)?;
        let Ok(disks) = mounted(replays.all()) else { continue };
        let has_marker = fixture.marker_path().exists();
        disks.into_iter().try_for_each(|disk| disk.unmount())?;
        if has_marker {
            // The mount has changed the disks.
            replays.cut(place)?;
            return Ok((images(fixture, &replays)?, place));
        }
    }
    Err("no cut leaves a marker".into())
}

fn images(fixture: &HoldFixture, replays: &Replays) -> Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for (index, replay) in replays.all().enumerate() {
        let image = fixture.base().join(format!("image-{index}"));
        let mut copy = Command::new("dd");
        copy.arg(format!("if={}", replay.device().display()));
        copy.arg(format!("of={}", image.display())).args(["bs=1M", "conv=sparse", "status=none"]);
        crate::recording::finish("dd", patiently(COPYING), &mut copy)?;
        images.push(image);
    }
    Ok(images)
}

/// Recovers again: everything has to be set aside, whatever the first recovery did, and can be
/// put back.
fn judge(fixture: &HoldFixture, before: &HeldContent) -> Result<Option<BrokenPromise>> {
    fixture.boot()?;
    let fault = |kind, detail| Ok(Some((kind, detail)));
    let recovered = fixture.verb("recover")?;
    if !recovered.status.success() {
        return fault("not recovered", failed("recover", &recovered));
    }
    if fixture.marker_path().exists() {
        return fault("marker left", recovered.stderr);
    }
    match misplaced(fixture, before)? {
        Some(detail) => fault("not set aside", format!("{detail}; {}", recovered.stderr.trim())),
        None => put_back(fixture, before),
    }
}
