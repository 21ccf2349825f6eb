//! How fast the disk reads and writes data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The speed limits of a disk, which handles one request after the other; `None` is no limit.
///
/// A request takes the longer of two times: by the bandwidth, and by the requests per second.
/// A read that does not begin where the request before ended also takes a seek. A write takes
/// no seek, because it goes to the disk's cache, and the flush has to pay for the seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes per second that can be read.
    pub read_bytes: Option<u64>,
    /// Bytes per second that can be written.
    pub written_bytes: Option<u64>,
    /// Reads per second.
    pub reads: Option<u64>,
    /// Writes per second.
    pub writes: Option<u64>,
    /// The time of a seek: the heads of a hard disk move, and the platter turns.
    pub seek: Duration,
}

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    Read,
    Write,
}

impl Limits {
    /// As fast as this machine can.
    pub const NONE: Self = Self {
        read_bytes: None,
        written_bytes: None,
        reads: None,
        writes: None,
        seek: Duration::ZERO,
    };

    /// Returns how long a request takes; `contiguous` if it begins where the one before ended.
    pub(super) fn time(&self, transfer: Transfer, bytes: u64, contiguous: bool) -> Duration {
        let (rate, requests) = match transfer {
            Transfer::Read => (self.read_bytes, self.reads),
            Transfer::Write => (self.written_bytes, self.writes),
        };
        let nanos = |amount: u64, rate: Option<u64>| {
            let nanos =
                rate.map_or(0, |rate| u128::from(amount) * 1_000_000_000 / u128::from(rate.max(1)));
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        let has_seek = transfer == Transfer::Read && !contiguous;
        let seek = if has_seek { self.seek } else { Duration::ZERO };
        seek + nanos(bytes, rate).max(nanos(1, requests))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_takes_the_longer_of_its_two_shares_and_a_read_a_seek() {
        let limits = Limits {
            written_bytes: Some(1 << 20),
            writes: Some(100),
            seek: Duration::from_millis(4),
            ..Limits::NONE
        };
        let millis =
            |transfer, bytes, contiguous| limits.time(transfer, bytes, contiguous).as_millis();
        assert_eq!(millis(Transfer::Write, 4096, true), 10);
        assert_eq!(millis(Transfer::Write, 1 << 20, true), 1000);
        assert_eq!(millis(Transfer::Write, 4096, false), 10);
        assert_eq!(millis(Transfer::Read, 1 << 20, true), 0);
        assert_eq!(millis(Transfer::Read, 1 << 20, false), 4);
        assert_eq!(Limits::NONE.time(Transfer::Write, u64::MAX, false), Duration::ZERO);
    }
}
