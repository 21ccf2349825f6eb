//! How long the disk takes to make data durable.

use std::f64::consts::TAU;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The time of one flush of the disk's cache.
///
/// A program observes the time of an fsync, which is a different time: the loop device has no
/// FUA, so the kernel replaces the one durable journal write of an fsync by flush, write,
/// flush. An fsync of new data is therefore **two** flushes, on ext4, xfs and btrfs alike, and
/// a disk on which "an fsync takes 8 ms" is one whose flush takes 4 ms. State which one you
/// mean: [`Latency::of_flush`] or [`Latency::of_fsync`]. (An fdatasync of data overwritten in
/// place is one flush on ext4 and xfs, two on btrfs. Measured on Linux 6.18; some 0.1 ms per
/// flush comes on top of the set time.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    distribution: Distribution,
}

/// The distribution of the flush times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Distribution {
    Fixed { nanos: u64 },
    Uniform { low: u64, high: u64, seed: u64 },
    LogNormal { median: u64, p99: u64, seed: u64 },
}

/// An endless sequence of flush times.
#[derive(Debug, Clone)]
pub struct Draws {
    distribution: Distribution,
    random: fastrand::Rng,
}

impl Default for Latency {
    fn default() -> Self {
        Self::NONE
    }
}

impl Latency {
    /// No latency: a flush only costs its transfer to the daemon and back, some 50 us.
    pub const NONE: Self = Self::fixed(0);

    const fn fixed(nanos: u64) -> Self {
        Self { distribution: Distribution::Fixed { nanos } }
    }

    /// Returns the latency of a disk on which one flush takes `time`.
    #[must_use]
    pub fn of_flush(time: Duration) -> Self {
        Self::fixed(nanos(time))
    }

    /// Returns the latency of a disk on which an fsync of new data, two flushes, takes `time`.
    #[must_use]
    pub fn of_fsync(time: Duration) -> Self {
        Self::of_flush(time / 2)
    }

    /// Returns flush times distributed uniformly from `low` to `high`. The same seed gives the
    /// same times.
    #[must_use]
    pub fn uniform(low: Duration, high: Duration, seed: u64) -> Self {
        let (low, high) = (nanos(low), nanos(high));
        Self {
            distribution: Distribution::Uniform { low: low.min(high), high: high.max(low), seed },
        }
    }

    /// Returns log-normal flush times, which are close to those of real disks: half take less
    /// than `median`, 1 in 100 more than `p99`, and few much more. The same seed gives the
    /// same times.
    #[must_use]
    pub const fn log_normal(median: Duration, p99: Duration, seed: u64) -> Self {
        let (median, p99) = (median.as_nanos() as u64, p99.as_nanos() as u64);
        Self {
            distribution: Distribution::LogNormal {
                median,
                p99: if p99 < median { median } else { p99 },
                seed,
            },
        }
    }

    /// Returns the time of one flush; of a distribution, the median.
    #[must_use]
    pub fn flush(self) -> Duration {
        Duration::from_nanos(match self.distribution {
            Distribution::Fixed { nanos } => nanos,
            Distribution::Uniform { low, high, .. } => low + (high - low) / 2,
            Distribution::LogNormal { median, .. } => median,
        })
    }

    /// Returns the flush times from now on, without end.
    #[must_use]
    pub fn draws(self) -> Draws {
        let seed = match self.distribution {
            Distribution::Fixed { .. } => 0,
            Distribution::Uniform { seed, .. } | Distribution::LogNormal { seed, .. } => seed,
        };
        Draws { distribution: self.distribution, random: fastrand::Rng::with_seed(seed) }
    }
}

impl Iterator for Draws {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        /// 99 of 100 values of a standard normal variable are below this.
        const Z_99: f64 = 2.326_347_874_040_841;
        let nanos = match self.distribution {
            Distribution::Fixed { nanos } => nanos,
            Distribution::Uniform { low, high, .. } => self.random.u64(low..=high),
            Distribution::LogNormal { median, p99, .. } => {
                // Box-Muller transform; 1 - u because u may be 0.
                let (u, v) = (self.random.f64(), self.random.f64());
                let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos();
                let sigma = (p99.max(1) as f64 / median.max(1) as f64).ln() / Z_99;
                (median as f64 * (sigma * normal).exp()) as u64
            }
        };
        Some(Duration::from_nanos(nanos))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(latency: Latency, count: usize) -> Vec<Duration> {
        let mut times: Vec<Duration> = latency.draws().take(count).collect();
        times.sort();
        times
    }

    #[test]
    fn a_log_normal_latency_has_its_median_and_its_99th_percentile() {
        let (median, p99) = (Duration::from_millis(2), Duration::from_millis(20));
        let times = sorted(Latency::log_normal(median, p99, 7), 100_000);
        let near = |time: Duration, wanted: Duration| {
            (0.97..1.03).contains(&(time.as_secs_f64() / wanted.as_secs_f64()))
        };
        assert!(near(times[50_000], median), "{:?}", times[50_000]);
        assert!(near(times[99_000], p99), "{:?}", times[99_000]);
    }

    #[test]
    fn a_uniform_latency_stays_within_its_bounds() {
        let (low, high) = (Duration::from_micros(100), Duration::from_micros(300));
        let times = sorted(Latency::uniform(low, high, 7), 10_000);
        assert!(times[0] >= low && times[9_999] <= high);
        assert!(times[5_000] > Duration::from_micros(190));
        assert!(times[5_000] < Duration::from_micros(210));
    }

    #[test]
    fn a_seed_gives_the_same_times_again() {
        let times = |seed| {
            let distribution =
                Latency::log_normal(Duration::from_millis(1), Duration::from_millis(9), seed);
            distribution.draws().take(10).collect::<Vec<_>>()
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }
}
