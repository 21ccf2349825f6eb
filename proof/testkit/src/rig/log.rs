//! The requests to a recorded disk: writes, discards, flushes and marks, in one total order.
//!
//! An event is appended when it was done. Event and answer are under one lock, so a client's next
//! request comes after its answered write in the log. A flush has two events, its begin and its
//! end, because it only covers what was done before it began.

mod format;
mod recorder;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(super) use self::format::{EntryKind, HEADER, Header};
pub(super) use self::recorder::{FlushEnd, Recorder};
use crate::Result;
use crate::error::Context;

/// One event of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The time, by the monotonic clock of this boot. The logs of two disks can be cut at the
    /// same instant.
    pub nanos: u64,
    /// The kind of event.
    pub what: EventKind,
}

/// The kinds of events. Offsets and lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// Data was written; it is in the disk's cache until a flush.
    Write {
        /// Offset on the disk.
        offset: u64,
        /// Length of the data.
        length: u64,
        /// Position of the data in the log file.
        position: u64,
    },
    /// A range was discarded or zeroed; it reads as zeroes.
    Discard {
        /// Offset on the disk.
        offset: u64,
        /// Length of the range.
        length: u64,
    },
    /// A write or a discard was answered with EIO, on demand; the disk is unchanged.
    Failed {
        /// Offset on the disk.
        offset: u64,
        /// Length of the range.
        length: u64,
    },
    /// A flush arrived.
    FlushBegin,
    /// A flush is done: everything before its begin is durable.
    FlushEnd {
        /// The number of its begin.
        begin: usize,
    },
    /// A flush was answered with EIO; it made nothing durable.
    FlushFailed {
        /// The number of its begin.
        begin: usize,
    },
    /// A mark, set through the control socket.
    Mark(String),
}

/// The events of a recorded disk, read up to the last complete one.
///
/// A place in the log is a count of events: at *n*, the first *n* have happened.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    events: Vec<Event>,
    /// For each place, how many events a completed flush has made durable.
    durable: Vec<usize>,
    /// Up to where the file has been read.
    end: u64,
}

impl Log {
    /// Reads a log; the data of the writes stays in the file.
    ///
    /// # Errors
    /// The file cannot be read, or is no log.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).context("open the log", path)?;
        let path = path.to_owned();
        let mut log = Self { path, file, events: Vec::new(), durable: vec![0], end: 0 };
        log.refresh()?;
        Ok(log)
    }

    /// Reads the events that were added since.
    ///
    /// # Errors
    /// The file cannot be read, or is no log.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        self.read_on().context("read the log", self.path.clone())
    }

    fn read_on(&mut self) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        while self.end + HEADER <= size {
            let header = Header::read(&self.file, self.end)?;
            // An event is also incomplete if its length exceeds the largest file.
            let next = (self.end + HEADER).checked_add(header.payload());
            let Some(next) = next.filter(|next| *next <= size) else {
                break; // still being written
            };
            let event = self.event(&header)?;
            self.push(event);
            self.end = next;
        }
        Ok(())
    }

    fn event(&self, header: &Header) -> io::Result<Event> {
        let Header { offset, length, nanos, .. } = *header;
        let position = self.end + HEADER;
        let begin = || self.begin(offset);
        if offset.checked_add(length).is_none() {
            return Err(invalid("an event beyond the end of all disks"));
        }
        let what = match header.kind {
            EntryKind::Write => EventKind::Write { offset, length, position },
            EntryKind::Discard => EventKind::Discard { offset, length },
            EntryKind::Failed => EventKind::Failed { offset, length },
            EntryKind::FlushBegin => EventKind::FlushBegin,
            EntryKind::FlushEnd => EventKind::FlushEnd { begin: begin()? },
            EntryKind::FlushFailed => EventKind::FlushFailed { begin: begin()? },
            EntryKind::Mark => {
                let mut name = vec![0; usize::try_from(length).map_err(io::Error::other)?];
                self.file.read_exact_at(&mut name, position)?;
                EventKind::Mark(String::from_utf8_lossy(&name).into_owned())
            }
        };
        Ok(Event { nanos, what })
    }

    /// Returns the index of the begin of a flush.
    fn begin(&self, number: u64) -> io::Result<usize> {
        let begin = usize::try_from(number).ok();
        let begins = |begin: &usize| {
            self.events.get(*begin).is_some_and(|event| event.what == EventKind::FlushBegin)
        };
        begin.filter(begins).ok_or_else(|| invalid("the end of a flush that did not begin"))
    }

    fn push(&mut self, event: Event) {
        let before = self.durable.last().copied().unwrap_or_default();
        // Flushes may end in another order than they began. The flush that began last covers most.
        let durable = match event.what {
            EventKind::FlushEnd { begin } => before.max(begin),
            _ => before,
        };
        self.durable.push(durable);
        self.events.push(event);
    }

    /// Returns the events in their order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the number of events, which is also the last place.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether the log has no event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns how many events are durable at a place, whatever survives of the disk's cache.
    /// `at` is capped.
    #[must_use]
    pub fn durable(&self, at: usize) -> usize {
        self.durable[at.min(self.len())]
    }

    /// Returns the place right after the first mark of this name.
    #[must_use]
    pub fn mark(&self, name: &str) -> Option<usize> {
        let found = |event: &Event| matches!(&event.what, EventKind::Mark(mark) if mark == name);
        Some(self.events.iter().position(found)? + 1)
    }

    /// Returns all marks, each with the place right after it.
    pub fn marks(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(&self.events).filter_map(|(place, event)| match &event.what {
            EventKind::Mark(name) => Some((place, name.as_str())),
            _ => None,
        })
    }

    /// Returns the place at an instant of the monotonic clock, to cut the logs of several
    /// disks at the same time.
    #[must_use]
    pub fn at_nanos(&self, nanos: u64) -> usize {
        self.events.partition_point(|event| event.nanos <= nanos)
    }

    /// Returns the places from `from` to `to` where a cut can make a difference: after each
    /// write, discard, end of a flush and mark.
    pub fn places(&self, from: usize, to: usize) -> impl Iterator<Item = usize> + '_ {
        let matters = |event: &Event| {
            matches!(
                event.what,
                EventKind::Write { .. }
                    | EventKind::Discard { .. }
                    | EventKind::FlushEnd { .. }
                    | EventKind::Mark(_)
            )
        };
        let inner = (from..to.min(self.len())).filter(move |&n| matters(&self.events[n]));
        inner.map(|n| n + 1)
    }

    /// Returns the file that contains the data.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { offset, length, .. } => write!(f, "write {length} at {offset}"),
            Self::Discard { offset, length } => write!(f, "discard {length} at {offset}"),
            Self::Failed { offset, length } => write!(f, "failed {length} at {offset}"),
            Self::FlushBegin => f.write_str("flush begins"),
            Self::FlushEnd { begin } => write!(f, "flush {begin} ends"),
            Self::FlushFailed { begin } => write!(f, "flush {begin} fails"),
            Self::Mark(name) => write!(f, "mark {name}"),
        }
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(record: impl FnOnce(&mut Recorder)) -> Log {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        record(&mut Recorder::create(&path).unwrap());
        Log::open(&path).unwrap()
    }

    #[test]
    fn a_log_reads_as_it_was_recorded() {
        let log = recorded(|log| {
            log.write(4096, b"data").unwrap();
            let begin = log.flush_begin().unwrap();
            log.discard(0, 1 << 33).unwrap();
            log.flush_end(begin, FlushEnd::Done).unwrap();
            log.mark("here").unwrap();
        });
        let what: Vec<String> = log.events().iter().map(|event| event.what.to_string()).collect();
        let expected = [
            "write 4 at 4096",
            "flush begins",
            "discard 8589934592 at 0",
            "flush 1 ends",
            "mark here",
        ];
        assert_eq!(what, expected);
        assert_eq!(log.mark("here"), Some(5));
        assert_eq!(log.mark("elsewhere"), None);
        assert_eq!(log.marks().collect::<Vec<_>>(), [(5, "here")]);
        assert_eq!(log.places(0, 9).collect::<Vec<_>>(), [1, 3, 4, 5]);
    }

    #[test]
    fn a_flush_makes_durable_what_came_before_its_begin() {
        let log = recorded(|log| {
            let begin = log.flush_begin().unwrap();
            log.write(0, b"late").unwrap();
            let second = log.flush_begin().unwrap();
            log.flush_end(second, FlushEnd::Failed).unwrap();
            log.flush_end(begin, FlushEnd::Done).unwrap();
            let third = log.flush_begin().unwrap();
            log.flush_end(third, FlushEnd::Done).unwrap();
        });
        let durable: Vec<usize> = (0..=log.len()).map(|at| log.durable(at)).collect();
        assert_eq!(durable, [0, 0, 0, 0, 0, 0, 0, 5]);
    }

    #[test]
    fn a_half_written_event_is_left_for_the_next_reading() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut recorder = Recorder::create(&path).unwrap();
        recorder.write(0, &[1; 100]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let mut log = Log::open(&path).unwrap();
        assert!(log.is_empty());
        std::fs::write(&path, &whole).unwrap();
        log.refresh().unwrap();
        assert_eq!(log.len(), 1);
    }

    #[test]
    fn a_file_that_is_no_log_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, [7; 64]).unwrap();
        let error = Log::open(&path).unwrap_err().to_string();
        assert!(error.contains("cannot read the log"), "{error}");
    }
}
