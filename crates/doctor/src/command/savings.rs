//! What `synconce run` would save: at least, and about.
//!
//! A wait is on the critical path while nothing else of the command could run. How large a part
//! of the waits that is comes from samples, so the part has an error. `synconce run` still has to
//! write the data, once, at its end: that is subtracted, with the more careful of two estimates
//! in "at least".

use super::record::CommandRecord;
use super::spread::wilson;
use super::waits::Waits;
use serde::Serialize;

/// Seconds that `synconce run` would save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Savings {
    /// How often the processes were looked at during a wait.
    pub samples: u64,
    /// Seconds in which a sync was waited for and nothing else of the command could run.
    pub critical: f64,
    /// The error of `critical` to either side, at 95 % confidence.
    pub critical_error: f64,
    /// Seconds of the one commit at the end of a run.
    pub commit: f64,
    /// The least saving.
    pub at_least: f64,
    /// The likely saving.
    pub about: f64,
}

/// Seconds that a held call takes.
const HELD_CALL: f64 = 30e-6;
/// How many syncs of a small file the commit and the marker of a run take: likely, and at most.
const COMMIT_SYNCS: [f64; 2] = [4.0, 10.0];
/// Seconds a byte if the record does not say: 200 MB/s, and half of it.
const USUAL: [f64; 2] = [5e-9, 10e-9];

impl Savings {
    pub(super) fn from_record(record: &CommandRecord, waits: &Waits) -> Self {
        let held = &record.tally.held;
        let (part, low, high) = wilson(record.alone, record.looks);
        let lost = record.lost as f64 / 1000.0 / record.looks.max(1) as f64;
        let critical = waits.covered * part;
        let typical = held.waits.median();
        let bytes = held.started.max(held.synced);
        let rate = held.slope.seconds_a_byte();
        // The commit of a run that held a sync of everything makes one itself.
        let whole = held.whole;
        let commit = |at: usize| {
            let rate = rate.map_or(USUAL[at], |rate| rate * (1.0 + at as f64));
            whole + COMMIT_SYNCS[at] * typical + rate * bytes as f64 + HELD_CALL * held.calls as f64
        };
        Self {
            samples: record.looks,
            critical,
            critical_error: waits.covered * (high - part).max(part - low),
            commit: commit(0),
            at_least: (waits.covered * low - commit(1)).max(0.0),
            about: (waits.covered * lost - commit(0)).max(0.0),
        }
    }
}
