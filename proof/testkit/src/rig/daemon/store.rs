//! Stores the disk's data, and keeps changes, log and answers in one order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};

use super::replayed::Replayed;
use crate::Result;
use crate::error::Context;
use crate::rig::log::{FlushEnd, Recorder};
use crate::rig::record::RigRecord;

/// The bare disk: no latency, no faults.
pub(super) enum BareDisk {
    /// A working disk, recorded or not.
    Live { backing: File, recorder: Option<Mutex<Recorder>> },
    /// A disk after a power cut.
    Replayed(Box<Replayed>),
}

impl BareDisk {
    pub(super) fn open(record: &RigRecord) -> Result<Self> {
        if let Some(recording) = &record.replays {
            return Replayed::open(recording, &record.backing).map(Box::new).map(Self::Replayed);
        }
        let mut options = File::options();
        let backing = options.read(true).write(true).open(&record.backing);
        let backing = backing.context("open", &record.backing)?;
        let recorder = record.recording.as_ref().map(|recording| Recorder::create(&recording.log));
        Ok(Self::Live { backing, recorder: recorder.transpose()?.map(Mutex::new) })
    }

    /// Returns the backing file if the kernel may use it directly (passthrough).
    pub(super) fn passable(&self) -> Option<&File> {
        match self {
            Self::Live { backing, recorder: None } => Some(backing),
            _ => None,
        }
    }

    pub(super) fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Live { backing, .. } => backing.read_exact_at(data, offset),
            Self::Replayed(disk) => disk.read(offset, data),
        }
    }

    /// Writes and answers. A recorded write is logged, written and answered under one lock: a
    /// flush that begins afterwards covers the write, and a flush that began before does not.
    pub(super) fn write(&self, offset: u64, data: &[u8], answer: impl FnOnce(io::Result<()>)) {
        match self {
            Self::Live { backing, recorder } => {
                let mut log = lock(recorder.as_ref());
                let logged = log.as_mut().map_or(Ok(()), |log| log.write(offset, data));
                answer(logged.and_then(|()| backing.write_all_at(data, offset)));
            }
            Self::Replayed(disk) => answer(disk.write(offset, data)),
        }
    }

    /// Makes a range read as zeroes, and answers.
    pub(super) fn discard(&self, offset: u64, length: u64, answer: impl FnOnce(io::Result<()>)) {
        match self {
            Self::Live { backing, recorder } => {
                let mut log = lock(recorder.as_ref());
                let logged = log.as_mut().map_or(Ok(()), |log| log.discard(offset, length));
                // tmpfs cannot zero a range, and a hole reads as zeroes.
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let punch = || Ok(fallocate(backing, hole, offset, length)?);
                answer(logged.and_then(|()| punch()));
            }
            Self::Replayed(disk) => answer(disk.discard(offset, length)),
        }
    }

    /// Logs a change that is answered with an error and not made.
    pub(super) fn failed(&self, offset: u64, length: u64, answer: impl FnOnce()) {
        let mut log = self.log();
        // If the log cannot be written, the next change fails; the caller gets an error here
        // anyway.
        let _ = log.as_mut().map(|log| log.failed(offset, length));
        answer();
    }

    /// Logs the arrival of a flush.
    pub(super) fn flush_begin(&self) -> io::Result<u64> {
        self.log().map_or(Ok(0), |mut log| log.flush_begin())
    }

    /// Logs the end of a flush, and answers; `answer` gets true if the end was logged.
    pub(super) fn flush_end(&self, begin: u64, end: FlushEnd, answer: impl FnOnce(bool)) {
        let mut log = self.log();
        let logged = log.as_mut().map_or(Ok(()), |log| log.flush_end(begin, end));
        answer(logged.is_ok());
    }

    /// Returns the recorder, if this disk is recorded.
    pub(super) fn log(&self) -> Option<MutexGuard<'_, Recorder>> {
        match self {
            Self::Live { recorder, .. } => lock(recorder.as_ref()),
            Self::Replayed(_) => None,
        }
    }
}

fn lock(recorder: Option<&Mutex<Recorder>>) -> Option<MutexGuard<'_, Recorder>> {
    recorder.map(|recorder| recorder.lock().unwrap_or_else(PoisonError::into_inner))
}
