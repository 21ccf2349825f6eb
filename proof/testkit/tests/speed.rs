//! A disk is as slow as requested. The tests check the times that the disk plans, because a busy
//! machine makes the real times longer.
//!
//! Needs root. If a rig cannot be set up, the tests fail: they test nothing else.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use synconce_testkit::harness::without_foreign_syncs;
use synconce_testkit::rig::{Latency, Limits, PRESETS, Rig};

fn write_and_sync(path: &Path, length: usize) {
    let mut file = File::create(path).unwrap();
    file.write_all(&vec![7; length]).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn flushes_take_the_times_of_their_distribution_one_after_the_other() {
    let (median, p99) = (Duration::from_micros(500), Duration::from_millis(3));
    let latency = Latency::log_normal(median, p99, 7);
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().latency(latency).up().unwrap();
    let before = rig.disk().stats().unwrap();
    for number in 0..20 {
        write_and_sync(&rig.path().join(number.to_string()), 100);
    }
    let done = rig.disk().stats().unwrap() - before;
    assert!(done.flushes >= 40, "{done:?}");
    // The journal's timer may have caused flushes before.
    let first = usize::try_from(before.flushes).unwrap();
    let sums = (0..=first).map(|skipped| {
        let draws = latency.draws().skip(skipped).take(usize::try_from(done.flushes).unwrap());
        draws.sum::<Duration>().as_nanos()
    });
    let planned = u128::from(done.planned_flush_nanos);
    assert!(sums.into_iter().any(|sum| sum == planned), "{done:?}");
    assert!(done.flush_nanos >= done.planned_flush_nanos, "{done:?}");
}

#[test]
fn writes_take_their_share_of_the_bandwidth() {
    let limits = Limits { written_bytes: Some(64 << 20), ..Limits::NONE };
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().limits(limits).up().unwrap();
    assert!(!rig.passthrough(), "what bypasses the daemon has no limits");
    let (before, start) = (rig.disk().stats().unwrap(), Instant::now());
    write_and_sync(&rig.path().join("file"), 8 << 20);
    let (took, done) = (start.elapsed(), rig.disk().stats().unwrap() - before);
    let transfers = done.transfers.unwrap();
    let share = transfers.written_bytes * 1_000_000_000 / (64 << 20);
    assert!(transfers.planned_nanos.abs_diff(share) < 1_000_000, "{transfers:?}");
    assert!(took >= Duration::from_millis(125), "{took:?}");
}

#[test]
fn writes_are_no_more_than_so_many_a_second() {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().record(true).up().unwrap();
    rig.disk().set_limits(Limits { writes: Some(1000), ..Limits::NONE }).unwrap();
    let before = rig.disk().stats().unwrap();
    for number in 0..10 {
        write_and_sync(&rig.path().join(number.to_string()), 4096);
    }
    let done = (rig.disk().stats().unwrap() - before).transfers.unwrap();
    assert!(done.writes >= 20, "{done:?}");
    assert_eq!(done.planned_nanos, done.writes * 1_000_000, "{done:?}");
}

#[test]
fn every_preset_makes_a_disk() {
    for preset in &PRESETS {
        let rig = Rig::builder().preset(preset).up().unwrap();
        write_and_sync(&rig.path().join("file"), 10_000);
        let stats = rig.disk().stats().unwrap();
        let slow = preset.latency != Latency::NONE;
        assert_eq!(stats.planned_flush_nanos > 0, slow, "{}: {stats:?}", preset.name);
    }
}

#[test]
fn limits_and_passthrough_exclude_each_other() {
    let limits = Limits { reads: Some(1), ..Limits::NONE };
    let error = Rig::builder().passthrough(true).limits(limits).up().unwrap_err();
    assert!(error.to_string().starts_with("cannot limit the speed with passthrough"), "{error}");
    let rig = Rig::builder().passthrough(true).up().unwrap();
    let error = rig.disk().set_limits(limits).unwrap_err();
    assert!(error.to_string().contains("without passthrough"), "{error}");
}
