//! Cuts a recovery, or the restore after it: the disk of one power cut is recorded meanwhile, cut
//! again, and recovered again.

use super::HoldCut;
use super::cuts::Replays;
use super::fixture::{HeldContent, HoldFixture, failed, mounted};
use super::judge::{misplaced, put_back};
use super::recording::{Marks, RecordedHold, mark, record_again};
use crate::Result;
use crate::background_load::LoadKind;
use crate::campaign::{BrokenPromise, Campaign, Findings};
use crate::config::DiskKind;
use crate::cuts::{CutPoint, instants};
use crate::recording::place;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::patiently;

/// How often a first cut is tried until it leaves a marker.
const TRIES: usize = 40;
const COPYING: Duration = Duration::from_secs(120);

/// Cuts `recorded` once where a marker is left, and the recovery from that, or the restore after
/// it.
pub(super) fn cut(
    what: HoldCut,
    fixture: &HoldFixture,
    recorded: &RecordedHold,
    disk: DiskKind,
    campaign: Campaign,
) -> Result<Findings> {
    let mut random = fastrand::Rng::with_seed(campaign.seed);
    let (images, first) = interrupted(fixture, recorded, &mut random)?;
    let mut before = HeldContent::new();
    let load = LoadKind::for_round(random.u64(..4));
    let is_restore = what == HoldCut::Restore;
    let prepare = || {
        before = fixture.content()?;
        if is_restore { write_anew(fixture) } else { Ok(()) }
    };
    let act = || fixture.must(if is_restore { "restore" } else { "recover" });
    let recovery = record_again(fixture, disk, &images, load, prepare, act)?;
    let log = recovery.disk.log()?;
    let other = recovery.other.as_ref().map(|tape| tape.log()).transpose()?;
    let range = place(&log, mark::START)?..place(&log, mark::END)?;
    let all = instants(&log, other.as_ref(), range);
    let mut replays = Replays::up(fixture, &recovery)?;
    let random_place = |_| CutPoint::random(&all, &mut random);
    let mut places: Vec<_> = (0..campaign.count).map(random_place).collect();
    places.sort_by_key(|place| (place.disk, place.other));
    campaign.at_each(places, |findings, place| {
        let at = || format!("{place:?} after {first:?}");
        let judge = if is_restore { judge_restore } else { judge };
        let seen = replays.look(place, || judge(fixture, &before));
        findings.add_promised(seen.map_err(|error| format!("{}: {error}", at()))?, at);
        Ok(())
    })
}

/// Recovers, and writes every database anew.
fn write_anew(fixture: &HoldFixture) -> Result<()> {
    fixture.must("recover")?;
    fixture.make_directories()?;
    fixture.write(1, 1)
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
        let place = CutPoint::random(&all, random);
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

fn images(fixture: &HoldFixture, replays: &Replays<'_>) -> Result<Vec<PathBuf>> {
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

/// Recovers again. Whatever part the first recovery had done, everything has to be set aside now,
/// and has to come back by a restore.
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

/// Recovers and restores again. Whatever part the first restore had done, everything has to be at
/// its place. After the daemon has written and the hold is settled, nothing may be left.
fn judge_restore(fixture: &HoldFixture, before: &HeldContent) -> Result<Option<BrokenPromise>> {
    fixture.boot()?;
    for verb in ["recover", "restore", "settle"] {
        let done = fixture.verb(verb)?;
        if !done.status.success() {
            return Ok(Some(("not put back", failed(verb, &done))));
        }
        if verb == "restore" {
            if fixture.content()? != *before {
                let detail = format!("the content differs; {}", done.stderr);
                return Ok(Some(("put back wrong", detail)));
            }
            fixture.touch()?;
        }
    }
    let left = fixture.leftovers()?;
    Ok((!left.is_empty()).then(|| ("left over", left.join("; "))))
}
