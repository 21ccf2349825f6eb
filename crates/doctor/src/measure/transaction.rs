//! What a transaction of an engine's databases waits for.
//!
//! A transaction of bbolt writes pages and syncs them, then writes a meta page and syncs it. All these
//! pages are in the file already, so both syncs are those of `overwrite`, and are not measured again.
//! Only a long list of free pages, which is among the written pages, takes longer.

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
/// The most that is written of a list.
const LONGEST: u64 = 64 << 20;

/// A transaction of bbolt.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Transaction {
    /// Microseconds: two syncs in place, by their median.
    pub micros: f64,
    /// fdatasync after the list of free pages that costs most was written again in place; none of a
    /// short list.
    pub free_list: Option<Times>,
}

/// The bounds of this measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionBudget {
    bound: Bound,
    /// The bytes of the list of free pages that costs most; 0 of a short list.
    list: usize,
}

impl TransactionBudget {
    /// Returns the bounds for `engine`; `None` if no database of the engine syncs its transactions.
    pub(crate) fn for_engine(engine: &ContainerEngine, bound: Bound) -> Option<Self> {
        let is_held = engine.databases.as_ref().is_some_and(|databases| databases.is_in_force);
        engine.synced_databases().next().filter(|_| !is_held)?;
        let list = engine.costliest_free_list().and_then(|(database, _)| database.free_list_bytes);
        let list = list.filter(|bytes| *bytes > SHORT).unwrap_or(0);
        Some(Self { bound, list: list.min(LONGEST) as usize })
    }

    /// Returns the bytes of the temporary file.
    pub(crate) fn bytes(&self) -> u64 {
        self.list as u64
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
    if budget.list > 0 {
        observer.begins("the list of free pages of a database");
        let samples = overwrites(scratch, "list", budget.list, budget.bound, observer)?;
        free_list = Times::from_samples(samples);
    }
    measured.transaction = Some(Transaction { micros: SYNCS * overwrite.median, free_list });
    Ok(())
}
