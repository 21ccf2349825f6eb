//! What a transaction of an engine's databases waits for.
//!
//! A transaction of bbolt writes pages and syncs them, then writes a meta page and syncs it. All
//! these pages are in the file already, so both syncs are those of `overwrite`, and are not
//! measured again. Only a long list of free pages, which is among the written pages, takes longer.

use super::Measured;
use super::clock::Bound;
use super::syncs::{Times, overwrites};
use crate::engine::ContainerEngine;
use crate::error::Error;
use crate::observer::Observer;
use crate::scratch::Scratch;
use serde::Serialize;

/// The syncs of a transaction.
const SYNCS: f64 = 2.0;
/// A shorter list takes hardly longer than any other page.
const SHORT: u64 = 64 << 10;
/// The most that is written of a list: a disk that writes 8 MB a second takes 0.13 s. A longer list
/// takes minutes on a slow disk.
const SAMPLE: u64 = 1 << 20;

/// A transaction of bbolt.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Transaction {
    /// Microseconds: two syncs in place, by their median.
    pub micros: f64,
    /// fdatasync after the list of free pages that costs most was written again in place; none of a
    /// short list.
    pub free_list: Option<Times>,
    /// The bytes from which these times were scaled; none if the whole list was written.
    pub scaled_from: Option<u64>,
}

/// The bounds of this measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionBudget {
    bound: Bound,
    /// The bytes of the list of free pages that costs most; 0 of a short list.
    list: u64,
}

impl TransactionBudget {
    /// Returns the bounds for `engine`; `None` if no database of the engine syncs its transactions.
    pub(crate) fn for_engine(engine: &ContainerEngine, bound: Bound) -> Option<Self> {
        let is_held = engine.databases.as_ref().is_some_and(|databases| databases.is_in_force);
        engine.synced_databases().next().filter(|_| !is_held)?;
        let list = engine.costliest_free_list().and_then(|(database, _)| database.free_list_bytes);
        let list = list.filter(|bytes| *bytes > SHORT).unwrap_or(0);
        Some(Self { bound, list })
    }

    /// Returns the bytes of the temporary file.
    pub(crate) fn bytes(&self) -> u64 {
        self.list.min(SAMPLE)
    }
}

impl Times {
    /// Returns the times of a sync of `factor` times as many bytes, if a sync of one page takes
    /// `page`.
    fn scaled(self, page: Self, factor: f64) -> Self {
        let scale = |sample: f64, page: f64| page + factor * (sample - page).max(0.0);
        Self {
            samples: self.samples,
            fastest: scale(self.fastest, page.fastest),
            quarter: scale(self.quarter, page.quarter),
            median: scale(self.median, page.median),
            p99: scale(self.p99, page.p99),
        }
    }
}

/// Derives the wait from the sync in place, if that was measured, and measures the list.
pub(crate) fn measure(
    scratch: &Scratch,
    budget: TransactionBudget,
    observer: &mut dyn Observer,
    measured: &mut Measured,
) -> Result<(), Error> {
    let Some(overwrite) = measured.overwrite else { return Ok(()) };
    let mut free_list = None;
    let written = budget.bytes();
    let scaled_from = (written < budget.list).then_some(written);
    if written > 0 {
        observer.begins("the list of free pages of a database");
        let samples = overwrites(scratch, "list", written as usize, budget.bound, observer)?;
        free_list = Times::from_samples(samples);
    }
    if scaled_from.is_some() {
        let factor = budget.list as f64 / written as f64;
        free_list = free_list.map(|times| times.scaled(overwrite, factor));
    }
    measured.transaction =
        Some(Transaction { micros: SYNCS * overwrite.median, free_list, scaled_from });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_scaled_from_a_sample() {
        let times = |micros| Times {
            samples: 3,
            fastest: micros,
            quarter: micros,
            median: micros,
            p99: micros,
        };
        assert_eq!(times(110.0).scaled(times(10.0), 64.0), times(6_410.0));
        // A sample that takes no longer than a page.
        assert_eq!(times(9.0).scaled(times(10.0), 64.0), times(10.0));
        let bound = Bound { time: std::time::Duration::ZERO, samples: 0 };
        for (list, written) in [(0, 0), (100 << 10, 100 << 10), (64 << 20, 1 << 20)] {
            assert_eq!(TransactionBudget { bound, list }.bytes(), written);
        }
    }
}
