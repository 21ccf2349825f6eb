//! The handle by which a test controls the disk while a file system is mounted from it.

use std::io::{BufRead, BufReader, Write};
use std::ops::Sub;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::protocol::{DiskRequest, Response, VERSION};
use super::{Cut, Fault, Latency, Limits, Loss, Requests};
use crate::error::Context;
use crate::{Error, Result};

/// Longer than any answer of a working daemon: no answer waits for the disk. The slowest is
/// the answer to the first cut of a long log.
const PATIENCE: Duration = Duration::from_secs(20);

/// Controls the disk under a rig. Clones control the same disk, from any thread.
///
/// The daemon listens on a socket, so a command is answered while flushes stall and while the
/// file system is stuck.
#[derive(Debug, Clone)]
pub struct Disk {
    socket: PathBuf,
}

/// What the disk has done since the set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stats {
    /// Flushes that arrived.
    pub flushes: u64,
    /// Flushes that were answered with EIO.
    pub failed_flushes: u64,
    /// Flushes that wait for their answer now. Not a sum: a difference contains the later
    /// value.
    pub waiting_flushes: u64,
    /// Nanoseconds from arrival to answer, summed over the answered flushes.
    pub flush_nanos: u64,
    /// Nanoseconds that the answered flushes should have taken individually by their
    /// [`Latency`], summed.
    pub planned_flush_nanos: u64,
    /// Requests that a fault has left without an answer. Not a sum.
    pub hanging: u64,
    /// Reads, writes and discards; `None` with passthrough, where they bypass the daemon.
    pub transfers: Option<Transfers>,
}

/// Data that passed the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Transfers {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Discards and zeroed ranges.
    pub discards: u64,
    /// Nanoseconds that reads and writes should have taken individually by their [`Limits`],
    /// summed.
    pub planned_nanos: u64,
    /// Reads that were answered with EIO.
    pub failed_reads: u64,
    /// Writes and discards that were answered with EIO.
    pub failed_writes: u64,
}

impl Disk {
    pub(super) fn at(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sets the time of a flush for every flush answered from now on.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn set_latency(&self, latency: Latency) -> Result<()> {
        self.tell(&DiskRequest::SetLatency(latency))
    }

    /// Sets how fast data is read and written from now on.
    ///
    /// # Errors
    /// The rig was set up with passthrough, so that data bypasses the daemon; or the daemon
    /// does not answer.
    pub fn set_limits(&self, limits: Limits) -> Result<()> {
        self.tell(&DiskRequest::SetLimits(limits))
    }

    /// Makes requests fail or hang from now on, in addition to the active faults.
    ///
    /// # Errors
    /// The rig was set up with passthrough, so that only flushes can fail; or the daemon does
    /// not answer.
    pub fn fail(&self, fault: Fault) -> Result<()> {
        self.tell(&DiskRequest::Fail(fault))
    }

    /// Ends every fault, and performs the hanging requests. Errors in the state of the file
    /// system remain.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn recover(&self) -> Result<()> {
        self.tell(&DiskRequest::Recover(Requests::Everything))
    }

    /// Fails the next `count` flushes with EIO, including the waiting ones, and no others. 0
    /// cancels a previous call.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn fail_flushes(&self, count: u64) -> Result<()> {
        self.tell(&DiskRequest::Recover(Requests::Flushes))?;
        self.tell(&DiskRequest::Fail(Fault::flushes().times(count)))
    }

    /// Fails every write and discard with EIO from now on, or stops doing so.
    ///
    /// # Errors
    /// The rig was set up with passthrough, so that writes bypass the daemon; or the daemon
    /// does not answer.
    pub fn fail_writes(&self, fail: bool) -> Result<()> {
        if fail {
            self.fail(Fault::writes())
        } else {
            self.tell(&DiskRequest::Recover(Requests::Writes))
        }
    }

    /// Makes every flush wait until [`Disk::release_flushes`].
    ///
    /// The loop device serves its requests in order, so reads and writes behind the flush may wait
    /// too.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn stall_flushes(&self) -> Result<()> {
        self.tell(&DiskRequest::StallFlushes(true))
    }

    /// Answers the stalled flushes, each after its set time from now, and stops stalling.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn release_flushes(&self) -> Result<()> {
        self.tell(&DiskRequest::StallFlushes(false))
    }

    /// Waits until a fault has left a request without an answer.
    ///
    /// # Errors
    /// No request hung within `limit`, or the daemon does not answer.
    pub fn wait_for_hanging(&self, limit: Duration) -> Result<()> {
        self.wait_until(limit, "hangs", |stats| stats.hanging > 0)
    }

    /// Waits until a flush waits for its answer.
    ///
    /// # Errors
    /// No flush arrived within `limit`, or the daemon does not answer.
    pub fn wait_for_waiting_flush(&self, limit: Duration) -> Result<()> {
        self.wait_until(limit, "waits", |stats| stats.waiting_flushes > 0)
    }

    fn wait_until(&self, limit: Duration, what: &str, is: impl Fn(&Stats) -> bool) -> Result<()> {
        let end = Instant::now() + limit;
        while !is(&self.stats()?) {
            if Instant::now() > end {
                return Err(Error::Refused(format!("no request {what} after {limit:?}")));
            }
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Appends a mark to the log and returns the place right after it. Every request that was
    /// answered before this call is before the mark.
    ///
    /// # Errors
    /// The rig was set up without recording; or the daemon does not answer.
    pub fn mark(&self, name: &str) -> Result<usize> {
        match self.ask(&DiskRequest::Mark(name.to_owned()))? {
            Response::Place(place) => Ok(place),
            other => Err(self.unexpected(other)),
        }
    }

    /// Makes a replayed disk the one after `cut`. The disk ignores discards until
    /// [`Disk::settle`].
    pub(super) fn cut(&self, cut: Cut) -> Result<Loss> {
        match self.ask(&DiskRequest::Cut(cut))? {
            Response::Cut(loss) => Ok(loss),
            other => Err(self.unexpected(other)),
        }
    }

    /// Ends the phase in which discards are ignored, which [`Disk::cut`] began.
    pub(super) fn settle(&self) -> Result<()> {
        self.tell(&DiskRequest::Settle)
    }

    /// Returns what the disk has done so far.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn stats(&self) -> Result<Stats> {
        match self.ask(&DiskRequest::Stats)? {
            Response::Stats(stats) => Ok(stats),
            other => Err(self.unexpected(other)),
        }
    }

    /// Removes latency, limits and faults, for a teardown.
    pub(super) fn calm(&self) -> Result<()> {
        self.set_latency(Latency::NONE)?;
        self.set_limits(Limits::NONE)?;
        self.recover()?;
        self.release_flushes()
    }

    /// Whether data bypasses the daemon. Fails if the daemon's binary is not of this library's
    /// version.
    pub(super) fn passthrough(&self) -> Result<bool> {
        match self.ask(&DiskRequest::Hello)? {
            Response::Hello { version: VERSION, passthrough } => Ok(passthrough),
            other => Err(self.unexpected(other)),
        }
    }

    fn tell(&self, request: &DiskRequest) -> Result<()> {
        match self.ask(request)? {
            Response::Done => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    fn ask(&self, request: &DiskRequest) -> Result<Response> {
        let exchange = || -> std::io::Result<Response> {
            let stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            (&stream).write_all(format!("{}\n", serde_json::to_string(request)?).as_bytes())?;
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line)?;
            Ok(serde_json::from_str(&line)?)
        };
        exchange().context("ask the rig's daemon at", &self.socket)
    }

    fn unexpected(&self, answer: Response) -> Error {
        let socket = self.socket.display();
        match answer {
            Response::Refused(reason) => Error::Refused(reason),
            other => Error::Refused(format!(
                "the rig's daemon at {socket} is of another version: it says {other:?}"
            )),
        }
    }
}

impl Sub for Stats {
    type Output = Self;

    /// Returns what happened between two readings; the earlier one is on the right.
    fn sub(self, earlier: Self) -> Self {
        Self {
            flushes: self.flushes - earlier.flushes,
            failed_flushes: self.failed_flushes - earlier.failed_flushes,
            waiting_flushes: self.waiting_flushes,
            flush_nanos: self.flush_nanos - earlier.flush_nanos,
            planned_flush_nanos: self.planned_flush_nanos - earlier.planned_flush_nanos,
            hanging: self.hanging,
            transfers: self.transfers.zip(earlier.transfers).map(|(now, then)| now - then),
        }
    }
}

impl Sub for Transfers {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            discards: self.discards - earlier.discards,
            planned_nanos: self.planned_nanos - earlier.planned_nanos,
            failed_reads: self.failed_reads - earlier.failed_reads,
            failed_writes: self.failed_writes - earlier.failed_writes,
        }
    }
}
