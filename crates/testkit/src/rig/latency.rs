//! How long the disk takes to make data durable.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The time of one flush of the disk's cache.
///
/// A program sees the time of an fsync, which is another thing: the loop device has no FUA, so the
/// kernel replaces the one durable journal write of an fsync by flush, write, flush. An fsync of new
/// data is therefore **two** flushes, on ext4, xfs and btrfs alike, and a disk on which "an fsync takes
/// 8 ms" is one whose flush takes 4 ms. Say which one you mean: [`Latency::of_flush`] or
/// [`Latency::of_fsync`]. (An fdatasync of data overwritten in place is one flush on ext4 and xfs, two
/// on btrfs. Measured on Linux 6.18; some 0.1 ms a flush comes on top of the set time.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Latency {
    flush_nanos: u64,
}

impl Latency {
    /// Flushes cost nothing but their way to the daemon and back, some 50 us.
    pub const NONE: Self = Self { flush_nanos: 0 };
    /// A quick disk: an fsync takes 2 ms (a flush 1 ms).
    pub const FSYNC_2_MS: Self = Self { flush_nanos: 1_000_000 };
    /// A laptop's or a cloud disk: an fsync takes 8 ms (a flush 4 ms).
    pub const FSYNC_8_MS: Self = Self { flush_nanos: 4_000_000 };
    /// A slow disk: an fsync takes 16 ms (a flush 8 ms).
    pub const FSYNC_16_MS: Self = Self { flush_nanos: 8_000_000 };

    /// The disk on which one flush takes `time`.
    #[must_use]
    pub fn of_flush(time: Duration) -> Self {
        Self { flush_nanos: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// The disk on which an fsync of new data, two flushes, takes `time`.
    #[must_use]
    pub fn of_fsync(time: Duration) -> Self {
        Self::of_flush(time / 2)
    }

    /// The time of one flush.
    #[must_use]
    pub fn flush(self) -> Duration {
        Duration::from_nanos(self.flush_nanos)
    }
}
