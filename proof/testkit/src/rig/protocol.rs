//! The protocol of the daemon's socket: one line of JSON each way, one exchange per
//! connection.

use serde::{Deserialize, Serialize};

use super::{Cut, Fault, Latency, Limits, Loss, Requests, Stats};

/// Incremented with every change, so that a stale binary is rejected.
pub(super) const VERSION: u32 = 3;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum DiskRequest {
    Hello,
    Stats,
    SetLatency(Latency),
    SetLimits(Limits),
    Fail(Fault),
    /// End the faults on these requests, and perform the hanging requests.
    Recover(Requests),
    /// Answer no flush from now on, or all of them again.
    StallFlushes(bool),
    /// Append a mark to the log.
    Mark(String),
    /// Become the disk after this power cut, and ignore discards until `Settle`.
    Cut(Cut),
    /// The kernel's caches of the disk are empty now: execute discards again.
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
