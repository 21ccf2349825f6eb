//! `synconce doctor --full`: the disk gets writes of the same size, place and depth as from fio.
//!
//! Speeds of a shared machine cannot be compared. So the disk is slow: it does one write at a time,
//! each in a millisecond. Then the number of waiting writes is the depth, or less if the machine is
//! too busy to submit that many.

use crate::support::{doctor, report};
use libtest_mimic::Trial;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};
use synconce_testkit::harness::{Need, Place, finish, trial};
use synconce_testkit::rig::{EventKind, FsKind, Limits, Rig};

pub fn trials() -> Vec<Trial> {
    let needs = [Need::Program("filefrag", "e2fsprogs"), Need::Program("mkfs.xfs", "xfsprogs")];
    vec![trial(writes_have_the_size_place_and_depth_of_those_of_fio, &needs)]
}

/// Writes a second of the disk.
const RATE: u64 = 1_000;

/// A file of the measurement, while it was there.
#[derive(Debug)]
struct SeenFile {
    created: SystemTime,
    /// Where the file is on the disk.
    extents: Vec<Range<u64>>,
    /// By the clock of the recording.
    nanos: Range<u64>,
    /// How many writes waited for the disk, at each look.
    waiting: Vec<u64>,
}

/// What the disk got of a file.
#[derive(Debug)]
struct Pattern {
    /// How many writes usually waited for the disk.
    depth: u64,
    /// The mean length of a write, in bytes.
    length: u64,
    is_aligned: bool,
    /// Whether a write usually begins where the one before ended.
    is_sequential: bool,
}

/// Returns the file that is measured in `path`.
fn measured(path: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(path).unwrap().flatten();
    let ours = entries
        .find(|entry| entry.file_name().to_string_lossy().starts_with(".synconce-doctor-"))?;
    Some(ours.path().join("writes"))
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Returns where the bytes of `file` are on the disk; nothing of a file that has no space yet, or
/// is removed.
fn extents(place: &Place, file: &Path) -> Vec<Range<u64>> {
    let ended = finish(place.command("filefrag").args(["-v", "-b4096"]).arg(file));
    let extent = |line: &str| {
        // `   0:        0..   63999:      12345..     76344:  64000: unwritten,eof`
        let mut parts = line.split(':').skip(2);
        let (first, last) = parts.next()?.split_once("..")?;
        let block = |text: &str| text.trim().parse::<u64>().ok();
        Some(block(first)? * 4096..(block(last)? + 1) * 4096)
    };
    ended.stdout.lines().filter_map(extent).collect()
}

/// Looks at the files that doctor writes to on `rig` while `goes_on`.
fn look_on(place: &Place, rig: &Rig, goes_on: impl Fn() -> bool) -> Vec<SeenFile> {
    let device = rig.device().file_name().unwrap().to_str().unwrap();
    let waiting = format!("/sys/block/{device}/inflight");
    let mut all: Vec<SeenFile> = Vec::new();
    while goes_on() {
        thread::sleep(Duration::from_millis(1));
        let found = measured(rig.path());
        let created = found.as_ref().and_then(|file| fs::metadata(file).ok()?.created().ok());
        let Some((file, created)) = found.zip(created) else { continue };
        if all.last().is_none_or(|seen| seen.created != created) {
            let extents = extents(place, &file);
            let began = now();
            if !extents.is_empty() {
                all.push(SeenFile { created, extents, nanos: began..began, waiting: Vec::new() });
            }
        }
        let Some(seen) = all.last_mut() else { continue };
        let text = fs::read_to_string(&waiting).unwrap();
        let writes = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        seen.nanos.end = now();
        seen.waiting.push(writes);
    }
    all
}

/// Returns what the disk got of the file `seen`.
fn pattern(rig: &Rig, seen: &SeenFile) -> Pattern {
    let log = rig.recording().unwrap().log().unwrap();
    let events = log.events().iter().filter(|event| seen.nanos.contains(&event.nanos));
    let writes = events.filter_map(|event| match event.what {
        EventKind::Write { offset, length, .. } => Some(offset..offset + length),
        _ => None,
    });
    let is_of_file = |write: &Range<u64>| {
        seen.extents.iter().any(|part| part.start <= write.start && write.end <= part.end)
    };
    let writes: Vec<_> = writes.filter(is_of_file).collect();
    assert!(writes.len() > 20, "{seen:?}");
    let lengths: u64 = writes.iter().map(|write| write.end - write.start).sum();
    let mut waiting = seen.waiting.clone();
    waiting.sort_unstable();
    let next = writes.windows(2).filter(|pair| pair[0].end == pair[1].start).count();
    Pattern {
        // The median: the file system may write for itself, too.
        depth: waiting[waiting.len() / 2],
        length: lengths / writes.len() as u64,
        is_aligned: writes.iter().all(|write| write.start % 4096 == 0 && write.end % 4096 == 0),
        is_sequential: 2 * next > writes.len(),
    }
}

/// Measures, and returns what the disk got of each file.
fn patterns(place: &Place) -> Vec<Pattern> {
    let limits = Limits { writes: Some(RATE), written_bytes: Some(40_000_000), ..Limits::NONE };
    let rig =
        Rig::builder().fs(FsKind::Xfs).size(1 << 30).limits(limits).record(true).up().unwrap();
    let measured = thread::scope(|scope| {
        let mut doctor = doctor(place, rig.path(), &["--full"]);
        let root = rig.path();
        let running = scope.spawn(move || report(root, &mut doctor).0);
        let seen = look_on(place, &rig, || !running.is_finished());
        let report = running.join().unwrap();
        // A write takes a millisecond at least.
        let rate = report["measured"]["random"]["per_second"].as_f64();
        assert!(rate > Some(0.0) && rate < Some(1.1 * RATE as f64), "{report:#}");
        seen
    });
    measured.iter().map(|seen| pattern(&rig, seen)).collect()
}

fn writes_have_the_size_place_and_depth_of_those_of_fio(place: &Place) {
    let measured = patterns(place);
    let [random, sequential] = &measured[..] else { panic!("{measured:?}") };
    assert!(measured.iter().all(|pattern| pattern.is_aligned), "{measured:?}");
    // Writes that the page cache has collected would be longer, and in the order of the file.
    assert_eq!((random.length, random.is_sequential), (4096, false), "{measured:?}");
    assert!(random.depth <= 128, "{measured:?}");
    // The kernel may split a write of 1 MiB: a request has a limited number of pages that do not
    // follow each other in memory.
    assert!(sequential.is_sequential, "{measured:?}");
    assert!((64 << 10..=1 << 20).contains(&sequential.length), "{measured:?}");
    // At most 8 writes; the lengths are a mean.
    assert!(sequential.depth * sequential.length <= 10 << 20, "{measured:?}");
}
