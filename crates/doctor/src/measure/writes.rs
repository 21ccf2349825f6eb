//! Writes past the page cache: 4 KiB at random, and 1 MiB in sequence. By fio where it is
//! installed, with the settings of a published comparison of build hosts (direct, libaio, depth
//! 128, at most 3 GiB); otherwise by as many threads as that depth.

use super::Measured;
use crate::error::Error;
use crate::not_measured::NotMeasured;
use crate::observer::{Observer, check};
use crate::place::ExaminedPlace;
use crate::program::{POLL, RunningChild};
use crate::scratch::Scratch;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::Errno;
use serde::Serialize;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The largest file of the measurement.
const LARGEST: u64 = 3 << 30;
/// Below this size random writes would all be in one place.
const SMALLEST: u64 = 32 << 20;
/// Its name.
const FILE: &str = "writes";
/// The alignment that writes with O_DIRECT need everywhere.
const ALIGNMENT: usize = 4_096;

/// Writes in a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Writes {
    /// Writes.
    pub per_second: f64,
    /// Bytes.
    pub bytes_per_second: f64,
    /// The program that measured.
    pub by: &'static str,
}

#[derive(Clone, Copy)]
struct WritePattern {
    name: &'static str,
    /// fio's name of it.
    rw: &'static str,
    block: usize,
    depth: usize,
    is_random: bool,
}

const RANDOM: WritePattern = WritePattern {
    name: "random writes",
    rw: "randwrite",
    block: 4 << 10,
    depth: 128,
    is_random: true,
};
const SEQUENTIAL: WritePattern =
    WritePattern { name: "bandwidth", rw: "write", block: 1 << 20, depth: 8, is_random: false };

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
        match by_any(scratch.path(), pattern, size, time, observer)? {
            None => {
                let why = "the file system refuses writes past the page cache (O_DIRECT)";
                not_measured.push(NotMeasured::new(pattern.name, why));
            }
            result if pattern.is_random => measured.random = result,
            result => measured.sequential = result,
        }
    }
    Ok(())
}

/// Measures random writes to a file in `directory`. Returns `None` without O_DIRECT, or without
/// the space.
pub(crate) fn random(
    directory: &Path,
    size: u64,
    time: Duration,
    observer: &dyn Observer,
) -> Result<Option<Writes>, Error> {
    match size {
        ..SMALLEST => Ok(None),
        _ => by_any(directory, RANDOM, size, time, observer),
    }
}

/// Measures by fio, or else by threads.
fn by_any(
    directory: &Path,
    pattern: WritePattern,
    size: u64,
    time: Duration,
    observer: &dyn Observer,
) -> Result<Option<Writes>, Error> {
    let result = match by_fio(directory, pattern, size, time, observer)? {
        Some(writes) => Some(writes),
        None => by_threads(&directory.join(FILE), pattern, size, time, observer)?,
    };
    let _ = fs::remove_file(directory.join(FILE));
    Ok(result)
}

/// Returns `None` if fio is not installed, or fails.
fn by_fio(
    directory: &Path,
    pattern: WritePattern,
    size: u64,
    time: Duration,
    observer: &dyn Observer,
) -> Result<Option<Writes>, Error> {
    let output = directory.join("fio.json");
    let mut fio = Command::new("fio");
    fio.args(["--name=doctor", "--direct=1", "--ioengine=libaio", "--time_based"])
        .args(["--output-format=json", "--group_reporting"])
        .arg(format!("--rw={}", pattern.rw))
        .arg(format!("--bs={}", pattern.block))
        .arg(format!("--iodepth={}", pattern.depth))
        .arg(format!("--size={size}"))
        .arg(format!("--runtime={}", time.as_secs()))
        // A colon separates names of files.
        .arg(format!("--filename={FILE}"))
        .arg("--output=fio.json")
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(child) = fio.spawn() else { return Ok(None) };
    let mut running = RunningChild(child);
    let has_succeeded = loop {
        if let Some(status) =
            running.0.try_wait().map_err(Error::io("wait for", Path::new("fio")))?
        {
            break status.success();
        }
        check(observer)?;
        thread::sleep(POLL);
    };
    let text = fs::read_to_string(&output).unwrap_or_default();
    Ok(of_fio(&text).filter(|_| has_succeeded))
}

fn of_fio(json: &str) -> Option<Writes> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let write = &value["jobs"][0]["write"];
    let (per_second, bytes_per_second) = (write["iops"].as_f64()?, write["bw_bytes"].as_f64()?);
    (per_second > 0.0).then_some(Writes { per_second, bytes_per_second, by: "fio" })
}

/// Returns `None` if the file system has no O_DIRECT.
fn by_threads(
    path: &Path,
    pattern: WritePattern,
    size: u64,
    time: Duration,
    observer: &dyn Observer,
) -> Result<Option<Writes>, Error> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        Err(Errno::INVAL) => return Ok(None),
        Err(errno) => return Err(Error::io("create", path)(errno)),
    };
    // fio allocates the space as well; a file system without fallocate(2) gets a sparse file.
    match fallocate(&file, FallocateFlags::empty(), 0, size) {
        Ok(()) | Err(Errno::NOTSUP) => {}
        Err(errno) => return Err(Error::io("allocate", path)(errno)),
    }
    let (done, next, end) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let start = Instant::now();
    let write = || -> std::io::Result<()> {
        let buffer = vec![0x5a; pattern.block + ALIGNMENT];
        let aligned = &buffer[buffer.as_ptr().align_offset(ALIGNMENT)..][..pattern.block];
        let blocks = size / pattern.block as u64;
        while !end.load(Ordering::Relaxed) {
            let block = if pattern.is_random {
                fastrand::u64(..blocks)
            } else {
                next.fetch_add(1, Ordering::Relaxed) % blocks
            };
            file.write_all_at(aligned, block * pattern.block as u64)?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let written = thread::scope(|scope| {
        let threads: Vec<_> = (0..pattern.depth).map(|_| scope.spawn(write)).collect();
        let is_over = || threads.iter().all(thread::ScopedJoinHandle::is_finished);
        while start.elapsed() < time && observer.interrupted().is_none() && !is_over() {
            thread::sleep(POLL);
        }
        end.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    });
    check(observer)?;
    match written {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(None),
        Err(error) => Err(Error::io("write to", path)(error)),
        Ok(()) => {
            let per_second = done.into_inner() as f64 / start.elapsed().as_secs_f64();
            let bytes_per_second = per_second * pattern.block as f64;
            Ok(Some(Writes { per_second, bytes_per_second, by: "synconce" }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_fio_are_read_and_other_output_is_none() {
        let json = r#"{"jobs": [{"write": {"iops": 37900.5, "bw_bytes": 155238400}}]}"#;
        let writes = of_fio(json).unwrap();
        assert_eq!((writes.per_second, writes.bytes_per_second), (37_900.5, 155_238_400.0));
        assert_eq!(of_fio("fio: engine libaio not loadable"), None);
    }
}
