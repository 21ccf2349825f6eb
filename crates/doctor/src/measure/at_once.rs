//! fsync by several writers at once, as builds beside each other do.

use super::clock::Bound;
use super::syncs::APPENDED;
use crate::error::Error;
use crate::observer::{Observer, check};
use crate::program::POLL;
use crate::scratch::{Scratch, ScratchDirectory};
use rustix::fs::{OFlags, fsync};
use serde::Serialize;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

/// How many writers there are at most.
const WRITERS: usize = 3;
/// The files of 1, 2 and 3 writers.
pub(crate) const FILES: usize = WRITERS * (WRITERS + 1) / 2;

/// The syncs of some writers at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AtOnce {
    /// How many wrote, each to a file of its own.
    pub writers: usize,
    /// Syncs of each in a second, on average.
    pub per_second: f64,
}

pub(crate) fn measure(
    scratch: &Scratch,
    bound: Bound,
    observer: &mut dyn Observer,
) -> Result<Vec<AtOnce>, Error> {
    observer.begins("fsync by writers at once");
    (1..=WRITERS).map(|writers| together(scratch.directory(), writers, bound, observer)).collect()
}

fn together(
    directory: &ScratchDirectory,
    writers: usize,
    bound: Bound,
    observer: &dyn Observer,
) -> Result<AtOnce, Error> {
    let end = AtomicBool::new(false);
    let start = Instant::now();
    let write = |at: usize| -> io::Result<f64> {
        let mut file = directory.create(&format!("writer{writers}-{at}"), OFlags::empty())?;
        let (start, mut done) = (Instant::now(), 0);
        while done < bound.samples && !end.load(Ordering::Relaxed) {
            file.write_all(&[0x5a; APPENDED])?;
            fsync(&file)?;
            done += 1;
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    };
    let rates: io::Result<Vec<f64>> = thread::scope(|scope| {
        let write = &write;
        let threads: Vec<_> = (0..writers).map(|at| scope.spawn(move || write(at))).collect();
        let is_over = || threads.iter().all(ScopedJoinHandle::is_finished);
        while start.elapsed() < bound.time && observer.interrupted().is_none() && !is_over() {
            thread::sleep(POLL);
        }
        end.store(true, Ordering::Relaxed);
        let rate = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(rate).collect()
    });
    check(observer)?;
    let rates = rates.map_err(Error::io("sync in", directory.path()))?;
    Ok(AtOnce { writers, per_second: rates.iter().sum::<f64>() / writers as f64 })
}
