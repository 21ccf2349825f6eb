//! fsync and fdatasync, as a program feels them.

use super::Measured;
use super::clock::{Bound, Clock};
use crate::device::FlushCount;
use crate::error::Error;
use crate::observer::Observer;
use crate::place::ExaminedPlace;
use crate::scratch::Scratch;
use rustix::fs::{OFlags, fdatasync, fsync};
use rustix::io::Errno;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// The bytes of an append: those of etcd's check of a disk.
pub(crate) const APPENDED: usize = 2_300;
const BLOCK: usize = 4_096;

/// The times of one kind of sync, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// How many syncs were done.
    pub samples: usize,
    /// The shortest.
    pub fastest: f64,
    /// A quarter takes less.
    pub quarter: f64,
    /// Half take less.
    pub median: f64,
    /// 1 in 100 takes more.
    pub p99: f64,
}

/// What the devices did during the fsync calls, by the kernel's counts. Flushes that other
/// processes caused meanwhile are included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeviceFlushes {
    /// Flushes for each fsync.
    pub each: f64,
    /// Microseconds of a flush, on average.
    pub mean: f64,
    /// The part of the time of the fsync calls that is the device's, 0 to 1. The rest is the
    /// file system's.
    pub share: f64,
}

impl Times {
    /// Returns the times of `samples`; `None` of none.
    pub(crate) fn from_samples(mut samples: Vec<Duration>) -> Option<Self> {
        samples.sort_unstable();
        let last = samples.len().checked_sub(1)?;
        let at = |part: f64| samples[(last as f64 * part).round() as usize].as_nanos() as f64 / 1e3;
        Some(Self {
            samples: samples.len(),
            fastest: at(0.0),
            quarter: at(0.25),
            median: at(0.5),
            p99: at(0.99),
        })
    }
}

type SyncCall = fn(&File) -> Result<(), Errno>;

pub(crate) fn measure(
    place: &ExaminedPlace,
    scratch: &Scratch,
    bound: Bound,
    observer: &mut dyn Observer,
    measured: &mut Measured,
) -> Result<(), Error> {
    observer.begins("fsync");
    let before = FlushCount::now(&place.devices);
    let samples = appends(scratch, "fsync", |file| fsync(file), bound, observer)?;
    let after = FlushCount::now(&place.devices);
    let counted = before.zip(after).map(|(before, after)| after.since(before));
    measured.flushes = counted.and_then(|counted| flushes(counted, &samples));
    measured.fsync = Times::from_samples(samples);
    observer.begins("fdatasync");
    let samples = appends(scratch, "fdatasync", |file| fdatasync(file), bound, observer)?;
    measured.fdatasync = Times::from_samples(samples);
    observer.begins("fdatasync in place");
    measured.overwrite =
        Times::from_samples(overwrites(scratch, "overwrite", BLOCK, bound, observer)?);
    Ok(())
}

fn flushes(counted: FlushCount, samples: &[Duration]) -> Option<DeviceFlushes> {
    let waited: Duration = samples.iter().sum();
    let share = counted.time.as_secs_f64() / waited.as_secs_f64().max(1e-9);
    (counted.flushes > 0).then(|| DeviceFlushes {
        each: counted.flushes as f64 / samples.len().max(1) as f64,
        mean: counted.time.as_secs_f64() * 1e6 / counted.flushes as f64,
        share: share.min(1.0),
    })
}

fn appends(
    scratch: &Scratch,
    name: &str,
    sync: SyncCall,
    bound: Bound,
    observer: &dyn Observer,
) -> Result<Vec<Duration>, Error> {
    let path = scratch.directory().path_of(name);
    let made = scratch.directory().create(name, OFlags::empty());
    let mut file = made.map_err(Error::io("create", &path))?;
    let mut samples = Vec::new();
    let clock = Clock::start(bound);
    while clock.goes_on(samples.len(), observer)? {
        file.write_all(&[0x5a; APPENDED]).map_err(Error::io("write to", &path))?;
        let start = Instant::now();
        sync(&file).map_err(Error::io("sync", &path))?;
        samples.push(start.elapsed());
    }
    Ok(samples)
}

/// Measures fdatasync after `length` bytes of the file `name` were written again.
pub(super) fn overwrites(
    scratch: &Scratch,
    name: &str,
    length: usize,
    bound: Bound,
    observer: &dyn Observer,
) -> Result<Vec<Duration>, Error> {
    let path = scratch.directory().path_of(name);
    let made = scratch.directory().create(name, OFlags::empty());
    let file = made.map_err(Error::io("create", &path))?;
    let mut block = vec![0; length];
    let mut write = |byte: usize| {
        block.fill(byte as u8);
        let written = file.write_all_at(&block, 0);
        written.map_err(Error::io("write to", &path))?;
        let start = Instant::now();
        fdatasync(&file).map_err(Error::io("sync", &path))?;
        Ok(start.elapsed())
    };
    // The first write gives the file its blocks.
    write(0)?;
    let mut samples = Vec::new();
    let clock = Clock::start(bound);
    while clock.goes_on(samples.len(), observer)? {
        samples.push(write(samples.len())?);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_quantiles_in_microseconds() {
        let samples = (1..=101).rev().map(Duration::from_millis).collect();
        let times = Times::from_samples(samples).unwrap();
        assert_eq!(times.samples, 101);
        assert_eq!((times.fastest, times.quarter), (1_000.0, 26_000.0));
        assert_eq!((times.median, times.p99), (51_000.0, 100_000.0));
        assert_eq!(Times::from_samples(Vec::new()), None);
    }

    #[test]
    fn the_share_of_the_device_is_the_time_of_its_flushes() {
        let samples = [Duration::from_millis(10); 10];
        let counted = FlushCount { flushes: 20, time: Duration::from_millis(80) };
        let found = flushes(counted, &samples).unwrap();
        assert_eq!((found.each, found.mean), (2.0, 4_000.0));
        assert!((found.share - 0.8).abs() < 1e-9);
        assert_eq!(flushes(FlushCount::default(), &samples), None);
    }
}
