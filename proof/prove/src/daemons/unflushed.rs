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
/// The length is 0 until the file system has chosen the place of the data.
fn extent(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split(':');
    fields.next()?.trim().parse::<usize>().ok()?;
    let start = fields.nth(1)?.split("..").next()?.trim().parse().ok()?;
    let length: u64 = fields.next()?.trim().parse().ok()?;
    (length > 0).then(|| start..start + length)
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
    use crate::config::DiskKind;
    use std::collections::BTreeSet;
    use std::fs;
    use std::slice;
    use synconce_testkit::isolation::isolated;

    fn of_text(text: &str) -> Vec<Range<u64>> {
        text.lines().filter_map(extent).collect()
    }

    /// Printed by filefrag 1.47 for a file with holes, which was written in turns with another
    /// file.
    const ON_EXT4: &str = "\
Filesystem type is: ef53
File size of /mnt/ext4/file is 327680 (327680 blocks of 1 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..   65535:   16778240..  16843775:  65536:            
   1:   131072..  196607:   16843776..  16909311:  65536:            
   2:   262144..  327679:   16909312..  16974847:  65536:             last,eof
/mnt/ext4/file: 1 extent found
";
    const ON_XFS: &str = "\
Filesystem type is: 58465342
File size of /mnt/xfs/file is 327680 (327680 blocks of 1 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..   65535:      98304..    163839:  65536:            
   1:   131072..  196607:     229376..    294911:  65536:            
   2:   262144..  327679:     425984..    491519:  65536:     360448: last,eof
/mnt/xfs/file: 2 extents found
";

    #[test]
    fn the_extents_of_a_file_are_its_ranges_of_the_disk() {
        let on_ext4 = [16_778_240..16_843_776, 16_843_776..16_909_312, 16_909_312..16_974_848];
        assert_eq!(of_text(ON_EXT4), on_ext4);
        assert_eq!(of_text(ON_XFS), [98_304..163_840, 229_376..294_912, 425_984..491_520]);
    }

    /// The file system has not chosen the place yet, or there is no data.
    #[test]
    fn a_file_without_a_place_on_the_disk_has_no_extent() {
        let delayed = "\
File size of /mnt/ext4/delayed is 65536 (65536 blocks of 1 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..   65535:          0..         0:      0:             last,unknown_loc,delalloc,eof
/mnt/ext4/delayed: 1 extent found
";
        assert_eq!(of_text(delayed), []);
        let empty = "File size of /mnt/xfs/empty is 0 (0 blocks of 1 bytes)\n\
                     /mnt/xfs/empty: 0 extents found\n";
        assert_eq!(of_text(empty), []);
    }

    const BLOCK: u64 = 4096;
    /// The block of each file that is written.
    const WRITTEN: u64 = 2;

    /// Writes a block of `file` to the disk, without a flush.
    fn write_block(file: &Path) {
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "oflag=direct", "conv=notrunc", "count=1", "status=none"]);
        command.arg(format!("bs={BLOCK}")).arg(format!("seek={WRITTEN}"));
        command.arg(format!("of={}", file.display()));
        let done = process::run(&mut command, patiently(LIMIT)).unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    #[test]
    fn cuts_are_at_all_places_where_the_file_has_unflushed_writes_and_at_no_other() {
        let test = || {
            let place = tempfile::tempdir().unwrap();
            for kind in [DiskKind::Ext4, DiskKind::Xfs] {
                assert_chosen(kind, place.path());
            }
        };
        isolated(test, |_, test| test());
    }

    fn assert_chosen(kind: DiskKind, place: &Path) {
        let rig = kind.rig(512 << 20).record(true).at(place).up().unwrap();
        let [file, other] = ["file", "other"].map(|name| rig.path().join(name));
        for path in [&file, &other] {
            fs::write(path, [1; 64 << 10]).unwrap();
            fs::File::open(path).unwrap().sync_all().unwrap();
        }
        let extents = extents(&file).unwrap();
        let start = rig.disk().mark("start").unwrap();
        write_block(&other);
        rig.disk().mark("other").unwrap();
        write_block(&file);
        fs::File::open(&other).unwrap().sync_all().unwrap();
        let flushed = rig.disk().mark("flushed").unwrap();
        write_block(&other);
        let end = rig.disk().mark("end").unwrap();
        let tape = rig.finish().unwrap();
        let log = tape.log().unwrap();

        let block = extents[0].start + WRITTEN * BLOCK;
        let is_block =
            |kind: &EventKind| matches!(kind, EventKind::Write { offset, .. } if *offset == block);
        let mut events = log.events().iter().enumerate().skip(start);
        let (write, _) = events.find(|(_, event)| is_block(&event.what)).unwrap();
        let is_unflushed = |at: &usize| write < *at && log.durable(*at) <= write;
        let wanted: BTreeSet<_> = log.places(start, end).filter(is_unflushed).collect();
        assert!(wanted.contains(&(write + 1)), "{kind:?}");

        let campaign = Campaign::full(500, 7);
        let places = |extents: &[Range<u64>], range| {
            let chosen = choose(&log, extents, range, campaign).ok()?;
            Some(chosen.into_iter().map(|cut| cut.disk).collect::<Vec<_>>())
        };
        let chosen = places(&extents, start..end).unwrap();
        assert!(chosen.is_sorted() && chosen.len() == campaign.count, "{kind:?}: {chosen:?}");
        assert_eq!(BTreeSet::from_iter(chosen), wanted, "{kind:?}");
        assert_eq!(places(&extents, flushed..end), None, "{kind:?}: all is flushed");
        let of_one = |extent, range| places(slice::from_ref(&extent), range);
        // The file ends where the write begins, begins where the write ends, or shares a byte with
        // it.
        let next = block + BLOCK;
        assert_eq!(of_one(block - BLOCK..block, start..flushed), None, "{kind:?}");
        assert_eq!(of_one(next..next + BLOCK, start..flushed), None, "{kind:?}");
        for byte in [block, next - 1] {
            assert!(of_one(byte..byte + 1, start..end).is_some(), "{kind:?}");
        }
    }
}
