//! What is to go wrong with a disk, and for how long.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Requests that fail: begin with the kind, then say which of them, and for how long.
///
/// ```
/// # use synconce_testkit::rig::Fault;
/// let third_flush = Fault::flushes().after(2).times(1);
/// let bad_data = Fault::writes().holding("poison");
/// let dead = Fault::everything();
/// ```
///
/// With [`super::Disk::fail`] it begins; several may stand at once, and the first that fits decides. A
/// retry of the kernel is a request as well.
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
    /// Flushes. Whether one fails is decided when it is answered.
    Flushes,
    /// All of them.
    Everything,
}

impl Fault {
    /// Every request of a kind, from now on, until [`super::Disk::recover`].
    pub fn of(requests: Requests) -> Self {
        let (holding, after, times, lasting, hangs) = (None, 0, None, None, false);
        Self { requests, holding, after, times, lasting, hangs }
    }

    /// [`Requests::Reads`] fail.
    pub fn reads() -> Self {
        Self::of(Requests::Reads)
    }

    /// [`Requests::Writes`] fail.
    pub fn writes() -> Self {
        Self::of(Requests::Writes)
    }

    /// [`Requests::Flushes`] fail.
    pub fn flushes() -> Self {
        Self::of(Requests::Flushes)
    }

    /// The disk is dead.
    pub fn everything() -> Self {
        Self::of(Requests::Everything)
    }

    /// Only writes with these bytes in their data. Bytes across the border of two requests are not
    /// seen; within an aligned block of 4 KiB there is none.
    pub fn holding(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.holding = Some(bytes.into());
        self
    }

    /// Lets so many requests that fit go by first.
    pub fn after(mut self, count: u64) -> Self {
        self.after = count;
        self
    }

    /// Ends by itself after so many failures.
    pub fn times(mut self, count: u64) -> Self {
        self.times = Some(count);
        self
    }

    /// Ends by itself after this time from now.
    pub fn lasting(mut self, time: Duration) -> Self {
        self.lasting = Some(time);
        self
    }

    /// No answer instead of EIO: until the fault's time is over or [`super::Disk::recover`], when the
    /// request is done after all.
    pub fn hanging(mut self) -> Self {
        self.hangs = true;
        self
    }
}

impl Requests {
    /// Whether `other`, which is one kind, is among these.
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
