//! Writes past the page cache: 4 KiB at random, and 1 MiB in sequence, with the settings of a
//! published comparison of build hosts by fio (direct, libaio, depth 128, at most 3 GiB).

use super::Measured;
use crate::error::Error;
use crate::not_measured::NotMeasured;
use crate::observer::{Observer, check};
use crate::place::ExaminedPlace;
use crate::program::POLL;
use crate::scratch::{self, Scratch};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, fallocate, unlinkat};
use rustix::io::Errno;
use serde::Serialize;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_sys::aio::AsyncWrites;
use synconce_sys::reason;

/// The largest file of the measurement.
const LARGEST: u64 = 3 << 30;
/// Below this size random writes would all be in one place.
const SMALLEST: u64 = 32 << 20;
/// Its name.
const FILE: &str = "writes";
const NO_DIRECT: &str = "the file system refuses writes past the page cache (O_DIRECT)";

/// Writes in a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Writes {
    /// Writes.
    pub per_second: f64,
    /// Bytes.
    pub bytes_per_second: f64,
}

/// The writes, or why there are none.
type Outcome = Result<Writes, String>;

#[derive(Clone, Copy)]
struct WritePattern {
    name: &'static str,
    block: usize,
    depth: usize,
    is_random: bool,
}

const RANDOM: WritePattern =
    WritePattern { name: "random writes", block: 4 << 10, depth: 128, is_random: true };
const SEQUENTIAL: WritePattern =
    WritePattern { name: "bandwidth", block: 1 << 20, depth: 8, is_random: false };

/// Returns the size of the file, a quarter of what is free.
pub(crate) fn size(place: &ExaminedPlace) -> u64 {
    let size = (place.available / 4).min(LARGEST);
    size - size % SEQUENTIAL.block as u64
}

pub(crate) fn measure(
    scratch: &Scratch,
    size: u64,
    time: Duration,
    observer: &mut dyn Observer,
    measured: &mut Measured,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<(), Error> {
    if size < SMALLEST {
        let why = "the file system has too little free space";
        not_measured.push(NotMeasured::new("random writes and bandwidth", why));
        return Ok(());
    }
    for pattern in [RANDOM, SEQUENTIAL] {
        observer.begins(pattern.name);
        let directory = scratch.directory();
        let place = (directory.as_fd(), directory.path());
        match write_to_file(place, pattern, size, time, observer)? {
            Err(why) => not_measured.push(NotMeasured::new(pattern.name, why)),
            Ok(writes) if pattern.is_random => measured.random = Some(writes),
            Ok(writes) => measured.sequential = Some(writes),
        }
    }
    Ok(())
}

/// Measures random writes to a file in `place`, an open directory and its path for messages.
/// Returns `None` where they cannot be made, or without the space.
pub(crate) fn random(
    place: (BorrowedFd<'_>, &Path),
    size: u64,
    time: Duration,
    observer: &dyn Observer,
) -> Result<Option<Writes>, Error> {
    match size {
        ..SMALLEST => Ok(None),
        _ => Ok(write_to_file(place, RANDOM, size, time, observer)?.ok()),
    }
}

/// Measures writes to a new file in `place`, an open directory and its path for messages, and
/// removes the file.
fn write_to_file(
    place: (BorrowedFd<'_>, &Path),
    pattern: WritePattern,
    size: u64,
    time: Duration,
    observer: &dyn Observer,
) -> Result<Outcome, Error> {
    let result = submit(place, pattern, size, time, observer)?;
    let _ = unlinkat(place.0, FILE, AtFlags::empty());
    Ok(result)
}

/// Makes the writes as fio does: io_submit(2), and at most `depth` writes at a time. Threads would
/// wait for each other in an overlay.
fn submit(
    (directory, path): (BorrowedFd<'_>, &Path),
    pattern: WritePattern,
    size: u64,
    time: Duration,
    observer: &dyn Observer,
) -> Result<Outcome, Error> {
    let path = &path.join(FILE);
    let file = match scratch::create(directory, FILE, OFlags::DIRECT) {
        Ok(file) => file,
        Err(Errno::INVAL) => return Ok(Err(NO_DIRECT.to_owned())),
        Err(errno) => return Err(Error::io("create", path)(errno)),
    };
    // fio allocates the space as well; a file system without fallocate(2) gets a sparse file.
    match fallocate(&file, FallocateFlags::empty(), 0, size) {
        Ok(()) | Err(Errno::NOTSUP) => {}
        Err(errno) => return Err(Error::io("allocate", path)(errno)),
    }
    let mut writes = match AsyncWrites::new(file, pattern.depth, pattern.block) {
        Ok(writes) => writes,
        // Where all of fs.aio-max-nr are in use, as by databases: EAGAIN.
        Err(error) => {
            return Ok(Err(format!("cannot prepare asynchronous writes: {}", reason(&error))));
        }
    };
    let start = Instant::now();
    let done = write(&mut writes, pattern, size / pattern.block as u64, || {
        start.elapsed() < time && observer.interrupted().is_none()
    });
    let per_second = |done| done as f64 / start.elapsed().as_secs_f64();
    check(observer)?;
    match done.map(per_second) {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            Ok(Err(NO_DIRECT.to_owned()))
        }
        Err(error) => Err(Error::io("write to", path)(error)),
        Ok(per_second) => {
            let bytes_per_second = per_second * pattern.block as f64;
            Ok(Ok(Writes { per_second, bytes_per_second }))
        }
    }
}

/// Writes to a file of so many `blocks` while `goes_on`; returns how many writes have ended.
fn write(
    writes: &mut AsyncWrites,
    pattern: WritePattern,
    blocks: u64,
    goes_on: impl Fn() -> bool,
) -> io::Result<u64> {
    let (mut begun, mut ended) = (0, 0);
    while goes_on() {
        while writes.has_room() {
            let block = if pattern.is_random { fastrand::u64(..blocks) } else { begun % blocks };
            writes.begin(block * pattern.block as u64)?;
            begun += 1;
        }
        ended += writes.wait(POLL)? as u64;
    }
    Ok(ended)
}
