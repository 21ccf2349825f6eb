//! What is said over the daemon's socket: one line of JSON each way, one exchange a connection.

use serde::{Deserialize, Serialize};

use super::{Cut, Fault, Latency, Limits, Loss, Requests, Stats};

/// Raised with every change, so that a stale binary is named and not misunderstood.
pub(super) const VERSION: u32 = 3;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Hello,
    Stats,
    SetLatency(Latency),
    SetLimits(Limits),
    Fail(Fault),
    /// End the faults on these requests, and do what hangs.
    Recover(Requests),
    /// Answer no flush from now on, or all of them again.
    StallFlushes(bool),
    /// Put a mark into the log.
    Mark(String),
    /// Be the disk after this power cut, and take no discard seriously until it is settled.
    Cut(Cut),
    /// The kernel's caches of the disk are empty now.
    Settle,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Response {
    Hello {
        version: u32,
        passthrough: bool,
    },
    Stats(Stats),
    Done,
    /// A place in the log.
    Place(usize),
    Cut(Loss),
    Refused(String),
}
