//! Tight loops around one system call, each run as a separate process.

use crate::Error;
use rustix::fs::{Mode, OFlags, openat};
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

/// The system call of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    /// fsync of an open, clean file.
    Fsync,
    /// getppid: the cheapest call, for the cost of the filter alone.
    Getppid,
    /// openat of a file, read-only, and close: the filter inspects the flags of openat.
    Openat,
}

impl LoopKind {
    /// Returns the name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Getppid => "getppid",
            Self::Openat => "openat",
        }
    }
}

impl FromStr for LoopKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Fsync, Self::Getppid, Self::Openat]
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| format!("no loop {name}; there are fsync, getppid, openat"))
    }
}

/// Makes a call `count` times and returns nanoseconds per call.
///
/// The file is created if necessary. An fsync loop writes nothing, so the measured time is the
/// call and, for bare calls, the disk's flush; an openat loop includes the close.
///
/// # Errors
/// The path is missing, or a call fails.
#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds here are far below 2^52")]
pub fn measure_loop(kind: LoopKind, count: u64, path: Option<&Path>) -> Result<f64, Error> {
    let path = path.unwrap_or(Path::new(""));
    let start;
    match kind {
        LoopKind::Fsync => {
            let file = open(path)?;
            start = Instant::now();
            for _ in 0..count {
                rustix::fs::fsync(&file).map_err(Error::io("sync", path))?;
            }
        }
        LoopKind::Getppid => {
            start = Instant::now();
            for _ in 0..count {
                std::hint::black_box(rustix::process::getppid());
            }
        }
        LoopKind::Openat => {
            drop(open(path)?);
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            start = Instant::now();
            for _ in 0..count {
                openat(rustix::fs::CWD, path, flags, Mode::empty())
                    .map_err(Error::io("open", path))?;
            }
        }
    }
    Ok(start.elapsed().as_nanos() as f64 / count.max(1) as f64)
}

fn open(path: &Path) -> Result<File, Error> {
    OpenOptions::new().create(true).append(true).open(path).map_err(Error::io("open", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_without_its_file_names_the_act() {
        let error = measure_loop(LoopKind::Fsync, 1, None).expect_err("there is no file");
        assert!(error.to_string().starts_with("cannot open"), "{error}");
    }

    #[test]
    fn an_unknown_loop_is_refused_with_the_known_ones() {
        let error = LoopKind::from_str("msync").expect_err("the name is not known");
        assert!(error.contains("getppid"), "{error}");
    }
}
