//! Writes a log.

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;

use rustix::io::pwritev;
use rustix::time::{ClockId, clock_gettime};

use super::format::{EntryKind, HEADER, Header};
use crate::Result;
use crate::error::Context;

/// How a flush ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::rig) enum FlushEnd {
    Done,
    Failed,
}

/// Appends events, in the order in which the callers take its lock.
#[derive(Debug)]
pub(in crate::rig) struct Recorder {
    file: File,
    end: u64,
    events: u64,
    /// Set when an event is missing: after that nothing is recorded, and no request may be
    /// done.
    broken: bool,
}

impl Recorder {
    pub(in crate::rig) fn create(path: &Path) -> Result<Self> {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).open(path);
        let file = file.context("create the log", path)?;
        Ok(Self { file, end: 0, events: 0, broken: false })
    }

    /// Records data; the caller writes it to the disk only if this succeeds.
    pub(in crate::rig) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.append(EntryKind::Write, offset, data.len() as u64, data).map(drop)
    }

    pub(in crate::rig) fn discard(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.append(EntryKind::Discard, offset, length, &[]).map(drop)
    }

    pub(in crate::rig) fn failed(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.append(EntryKind::Failed, offset, length, &[]).map(drop)
    }

    /// Records the arrival of a flush and returns its number, which the end of the flush
    /// refers to.
    pub(in crate::rig) fn flush_begin(&mut self) -> io::Result<u64> {
        self.append(EntryKind::FlushBegin, 0, 0, &[])
    }

    pub(in crate::rig) fn flush_end(&mut self, begin: u64, end: FlushEnd) -> io::Result<()> {
        let kind = match end {
            FlushEnd::Done => EntryKind::FlushEnd,
            FlushEnd::Failed => EntryKind::FlushFailed,
        };
        self.append(kind, begin, 0, &[]).map(drop)
    }

    /// Records a mark and returns the place right after it.
    pub(in crate::rig) fn mark(&mut self, name: &str) -> io::Result<u64> {
        Ok(self.append(EntryKind::Mark, 0, name.len() as u64, name.as_bytes())? + 1)
    }

    /// Appends an event in one call, so that a killed daemon leaves complete events.
    fn append(
        &mut self,
        kind: EntryKind,
        offset: u64,
        length: u64,
        data: &[u8],
    ) -> io::Result<u64> {
        if self.broken {
            return Err(io::Error::other("the log could not be written: an event is missing"));
        }
        let now = clock_gettime(ClockId::Monotonic);
        let nanos = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
        let header = Header { kind, offset, length, nanos }.bytes();
        self.broken = true;
        let slices = [IoSlice::new(&header), IoSlice::new(data)];
        let written = pwritev(&self.file, &slices, self.end)?;
        if written != header.len() + data.len() {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        self.broken = false;
        self.end += HEADER + data.len() as u64;
        self.events += 1;
        Ok(self.events - 1)
    }
}
