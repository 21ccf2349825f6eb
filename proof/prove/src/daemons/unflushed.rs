//! Chooses cuts where a file of the daemon has writes that no flush has covered.

use crate::Result;
use crate::campaign::Campaign;
use crate::cuts::CutPoint;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::patiently;
use synconce_testkit::process;
use synconce_testkit::rig::{EventKind, Granularity, Log, Survivors};

/// How much of the unflushed writes survives a cut.
const SHARES: [f64; 3] = [0.2, 0.5, 0.8];
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the ranges of the disk, in bytes, that contain `file`. The file system must not move a
/// file that is written: not btrfs.
pub(super) fn extents(file: &Path) -> Result<Vec<Range<u64>>> {
    let mut command = Command::new("filefrag");
    let finished = process::run(command.args(["-v", "-b1"]).arg(file), patiently(LIMIT))?;
    let extents: Vec<_> = finished.stdout.lines().filter_map(extent).collect();
    if extents.is_empty() {
        return Err(format!("filefrag: no extent: {}{}", finished.stdout, finished.stderr).into());
    }
    Ok(extents)
}

/// Returns the range in a line of filefrag(8): `NUMBER: LOGICAL.. END: PHYSICAL.. END: LENGTH:`.
fn extent(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split(':');
    fields.next()?.trim().parse::<usize>().ok()?;
    let start = fields.nth(1)?.split("..").next()?.trim().parse().ok()?;
    let length: u64 = fields.next()?.trim().parse().ok()?;
    Some(start..start + length)
}

/// Chooses cuts in ascending order, at places from `range` where `extents` have unflushed writes. A
/// random share of all unflushed writes survives.
pub(super) fn choose(
    log: &Log,
    extents: &[Range<u64>],
    range: Range<usize>,
    campaign: Campaign,
) -> Result<Vec<CutPoint>> {
    let is_in_file = |kind: &EventKind| match kind {
        EventKind::Write { offset, length, .. } => {
            extents.iter().any(|extent| *offset < extent.end && extent.start < offset + length)
        }
        _ => false,
    };
    let events = log.events().iter().enumerate();
    let writes: Vec<_> =
        events.filter(|(_, event)| is_in_file(&event.what)).map(|(write, _)| write).collect();
    let is_unflushed = |place: &usize| {
        let before = writes.partition_point(|write| write < place);
        before > 0 && writes[before - 1] >= log.durable(*place)
    };
    let all: Vec<_> = log.places(range.start, range.end).collect();
    let places: Vec<_> = all.iter().copied().filter(is_unflushed).collect();
    eprintln!("the file has unflushed writes at {} of {} places", places.len(), all.len());
    if places.is_empty() {
        return Err("the file has unflushed writes at no place of the recording".into());
    }
    let mut random = fastrand::Rng::with_seed(campaign.seed);
    let mut chosen: Vec<_> = (0..campaign.count)
        .map(|_| {
            let disk = places[random.usize(..places.len())];
            let share = SHARES[random.usize(..SHARES.len())];
            let survivors = Survivors::Share { seed: random.u64(..), share };
            CutPoint { disk, other: 0, survivors, granularity: Granularity::Block }
        })
        .collect();
    chosen.sort_by_key(|place| place.disk);
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_filefrag_is_an_extent_or_none() {
        let line = "   1:    24576..   36863:  136622080.. 136634367:  12288:  136404992: last";
        assert_eq!(extent(line), Some(136_622_080..136_634_368));
        assert_eq!(extent(" ext:     logical_offset:        physical_offset: length:"), None);
        assert_eq!(extent("File size of /x: 1 is 262144 (262144 blocks of 1 bytes)"), None);
    }
}
