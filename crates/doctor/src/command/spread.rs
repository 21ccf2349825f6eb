//! Medians, percentiles, sums and slopes of any number of waits, in bounded memory.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Returns the part `of / n`, and the bounds of Wilson's interval at 95 % confidence, which also
/// hold for few samples.
pub(super) fn wilson(of: u64, n: u64) -> (f64, f64, f64) {
    const Z: f64 = 1.96;
    if n == 0 {
        return (0.0, 0.0, 1.0);
    }
    let (n, part) = (n as f64, of as f64 / n as f64);
    let scale = 1.0 + Z * Z / n;
    let middle = (part + Z * Z / (2.0 * n)) / scale;
    let half = Z / scale * (part * (1.0 - part) / n + Z * Z / (4.0 * n * n)).sqrt();
    (part, (middle - half).max(0.0), (middle + half).min(1.0))
}

/// Counts waits by their length. Lengths that differ by less than 3 % are counted together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Spread {
    classes: BTreeMap<u32, u64>,
    count: u64,
    /// The shortest and the longest wait in nanoseconds.
    bounds: Option<(u64, u64)>,
}

/// The number of classes between a length and its double, as a power of two.
const BITS: u32 = 5;

impl Spread {
    pub fn add(&mut self, nanoseconds: u64) {
        *self.classes.entry(class(nanoseconds)).or_default() += 1;
        self.count += 1;
        let (least, most) = self.bounds.unwrap_or((nanoseconds, nanoseconds));
        self.bounds = Some((least.min(nanoseconds), most.max(nanoseconds)));
    }

    /// Returns the median in seconds; 0 if there are no waits.
    pub fn median(&self) -> f64 {
        self.at(self.count / 2)
    }

    /// Returns the 99th percentile in seconds; 0 if there are no waits.
    pub fn p99(&self) -> f64 {
        self.at(self.count.saturating_mul(99).div_ceil(100).saturating_sub(1))
    }

    /// Returns the wait at `index` (from 0) of the sorted waits, in seconds.
    fn at(&self, index: u64) -> f64 {
        let Some((least, most)) = self.bounds else { return 0.0 };
        let mut before = 0;
        let reaches = |(_, count): &(&u32, &u64)| {
            before += **count;
            before > index
        };
        let class = self.classes.iter().find(reaches).map_or(0, |(class, _)| *class);
        middle(class).clamp(least, most) as f64 / 1e9
    }
}

fn class(nanoseconds: u64) -> u32 {
    let shift = (u64::BITS - nanoseconds.leading_zeros()).saturating_sub(BITS + 1);
    (shift << BITS) + u32::try_from(nanoseconds >> shift).unwrap_or(u32::MAX)
}

/// Returns the middle length of `class`, in nanoseconds.
fn middle(class: u32) -> u64 {
    if class < 2 << BITS {
        return u64::from(class);
    }
    let shift = (class >> BITS) - 1;
    let first = u64::from(class - (shift << BITS)).checked_shl(shift).unwrap_or(u64::MAX);
    first.saturating_add((1_u64 << (shift - 1).min(63)) - 1)
}

/// The time in which at least one wait was in progress.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Covered {
    /// The latest stretches: when each began and ended, in nanoseconds.
    stretches: BTreeMap<u64, u64>,
    /// The sum of the earlier stretches.
    earlier: u64,
    /// When the last of the earlier stretches ended.
    floor: u64,
}

/// The number of stretches that are kept. Earlier stretches are only in a sum: a wait that began
/// before their end counts from their end.
const STRETCHES: usize = 1024;

impl Covered {
    pub fn add(&mut self, begin: u64, wait: u64) {
        let mut end = begin.saturating_add(wait);
        let mut begin = begin.max(self.floor);
        while let Some((&first, &last)) = self.stretches.range(..=end).next_back()
            && last >= begin
        {
            self.stretches.remove(&first);
            (begin, end) = (begin.min(first), end.max(last));
        }
        if begin < end {
            self.stretches.insert(begin, end);
        }
        if self.stretches.len() > STRETCHES
            && let Some((begin, end)) = self.stretches.pop_first()
        {
            self.earlier += end - begin;
            self.floor = end;
        }
    }

    pub fn seconds(&self) -> f64 {
        let latest: u64 = self.stretches.iter().map(|(begin, end)| end - begin).sum();
        (self.earlier + latest) as f64 / 1e9
    }
}

/// The growth of a wait with its bytes, by the method of least squares.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Slope {
    count: f64,
    /// The means of the bytes and of the seconds.
    means: (f64, f64),
    /// The sum of the squared differences of the bytes from their mean.
    squares: f64,
    /// The sum of the differences of bytes and seconds from their means, multiplied with each
    /// other.
    products: f64,
}

impl Slope {
    /// Adds a wait by Welford's method, which keeps its precision over many values.
    pub fn add(&mut self, bytes: f64, seconds: f64) {
        self.count += 1.0;
        let off = bytes - self.means.0;
        self.means.0 += off / self.count;
        self.means.1 += (seconds - self.means.1) / self.count;
        self.squares += off * (bytes - self.means.0);
        self.products += off * (seconds - self.means.1);
    }

    /// Returns the seconds that each further byte adds to a wait. Returns `None` if too few waits
    /// were added, or all have about the same number of bytes.
    pub fn seconds_a_byte(&self) -> Option<f64> {
        const LEAST: f64 = 20.0;
        const SPREAD: f64 = 16_384.0;
        let is_known = self.count >= LEAST && (self.squares / self.count).sqrt() >= SPREAD;
        is_known.then(|| (self.products / self.squares).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_two_percent_and_those_of_one_wait_exact() {
        let mut spread = Spread::default();
        assert_eq!((spread.median(), spread.p99()), (0.0, 0.0));
        spread.add(20_345_678);
        assert_eq!((spread.median(), spread.p99()), (0.020_345_678, 0.020_345_678));
        let mut spread = Spread::default();
        for at in 1..=100_000 {
            spread.add(at * 1_000);
        }
        assert!((spread.median() / 0.05 - 1.0).abs() < 0.02, "{}", spread.median());
        assert!((spread.p99() / 0.099 - 1.0).abs() < 0.02, "{}", spread.p99());
        for wait in [0, 1, 63, 64, 65, 1_000_003, u64::MAX / 2, u64::MAX] {
            let off = middle(class(wait)).abs_diff(wait);
            assert!(off <= wait / 32, "{wait}: {off}");
        }
    }

    #[test]
    fn stretches_are_merged_in_any_order_and_no_more_than_the_limit_are_kept() {
        let mut covered = Covered::default();
        for (begin, wait) in [(30, 10), (10, 10), (15, 20), (15, 1), (50, 0), (100, 5)] {
            covered.add(begin, wait);
        }
        assert_eq!(covered.seconds(), 35e-9);
        let mut covered = Covered::default();
        for at in 0..100_000 {
            covered.add(at * 10, 6);
        }
        assert_eq!(covered.seconds(), 600_000e-9);
        assert_eq!(covered.stretches.len(), STRETCHES);
        // A wait that spans all stretches: the sum must not exceed its 1 ms.
        covered.add(0, 1_000_000);
        assert!(covered.seconds() > 600e-6 && covered.seconds() <= 1e-3, "{}", covered.seconds());
    }
}
