//! Faults of a disk: which requests fail, and for how long.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Requests that fail. Start with the kind of request, then restrict which requests fail and
/// for how long.
///
/// ```
/// # use synconce_testkit::rig::Fault;
/// let third_flush = Fault::flushes().after(2).times(1);
/// let bad_data = Fault::writes().holding("poison");
/// let dead = Fault::everything();
/// ```
///
/// [`super::Disk::fail`] activates a fault. Several faults may be active, and the first that
/// matches decides. A retry by the kernel counts as a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct Fault {
    pub(super) requests: Requests,
    pub(super) holding: Option<Vec<u8>>,
    pub(super) after: u64,
    pub(super) times: Option<u64>,
    pub(super) lasting: Option<Duration>,
    pub(super) hangs: bool,
}

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requests {
    /// Reads.
    Reads,
    /// Writes, discards and zeroed ranges.
    Writes,
    /// Flushes. Whether a flush fails is decided when it is answered.
    Flushes,
    /// Every kind.
    Everything,
}

impl Fault {
    /// Every request of a kind, from now on, until [`super::Disk::recover`].
    pub fn on(requests: Requests) -> Self {
        let (holding, after, times, lasting, hangs) = (None, 0, None, None, false);
        Self { requests, holding, after, times, lasting, hangs }
    }

    /// [`Requests::Reads`] fail.
    pub fn reads() -> Self {
        Self::on(Requests::Reads)
    }

    /// [`Requests::Writes`] fail.
    pub fn writes() -> Self {
        Self::on(Requests::Writes)
    }

    /// [`Requests::Flushes`] fail.
    pub fn flushes() -> Self {
        Self::on(Requests::Flushes)
    }

    /// Every request fails: the disk is dead.
    pub fn everything() -> Self {
        Self::on(Requests::Everything)
    }

    /// Restricts the fault to writes whose data contains these bytes. Bytes across the border
    /// of two requests are not found; no request splits an aligned block of 4 KiB.
    pub fn holding(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.holding = Some(bytes.into());
        self
    }

    /// Lets the first `count` matching requests pass.
    pub fn after(mut self, count: u64) -> Self {
        self.after = count;
        self
    }

    /// Ends the fault after `count` failures.
    pub fn times(mut self, count: u64) -> Self {
        self.times = Some(count);
        self
    }

    /// Ends the fault after `time` from now.
    pub fn lasting(mut self, time: Duration) -> Self {
        self.lasting = Some(time);
        self
    }

    /// Leaves requests unanswered instead of answering with EIO. At the end of the fault's
    /// time, or at [`super::Disk::recover`], the requests are performed.
    pub fn hanging(mut self) -> Self {
        self.hangs = true;
        self
    }
}

impl Requests {
    /// Whether these kinds include `other`, which is a single kind.
    pub(super) fn contain(self, other: Self) -> bool {
        self == Self::Everything || self == other
    }
}

impl FromStr for Requests {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "reads" => Ok(Self::Reads),
            "writes" => Ok(Self::Writes),
            "flushes" => Ok(Self::Flushes),
            "everything" => Ok(Self::Everything),
            _ => Err(format!("{text}: say reads, writes, flushes or everything")),
        }
    }
}
