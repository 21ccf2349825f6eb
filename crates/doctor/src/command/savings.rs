//! What `synconce run` would save: at least, and about.
//!
//! A wait is on the critical path while nothing else of the command could run. How large a part
//! of the waits that is comes from samples, so the part has an error. `synconce run` still has to
//! write the data, once, at its end: that is subtracted, with the more careful of two estimates
//! in "at least".

use super::record::{Call, Record};
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
    pub(super) fn of(record: &Record, waits: &Waits) -> Self {
        let held: Vec<&Call> = record.calls.iter().filter(|call| call.is_saved()).collect();
        let (part, low, high) = wilson(record.alone, record.looks);
        let lost = record.lost as f64 / 1000.0 / record.looks.max(1) as f64;
        let critical = waits.covered * part;
        // A sync_file_range(2) starts writes, and the fsync(2) that follows finds the same bytes.
        let (starts, syncs): (Vec<&Call>, Vec<&Call>) =
            held.iter().partition(|call| call.call == "sync_file_range");
        let typical = median(&syncs);
        let bytes = written(&starts).max(written(&syncs));
        let rate = seconds_a_byte(&syncs);
        // The commit of a run that held a sync of everything makes one itself.
        let whole = |call: &&&Call| matches!(&*call.call, "sync" | "syncfs");
        let whole = held.iter().filter(whole).map(|call| call.seconds()).fold(0.0, f64::max);
        let commit = |at: usize| {
            let rate = rate.map_or(USUAL[at], |rate| rate * (1.0 + at as f64));
            whole + COMMIT_SYNCS[at] * typical + rate * bytes as f64 + HELD_CALL * held.len() as f64
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

/// Returns the part `of / n`, and the bounds of Wilson's interval at 95 % confidence, which also
/// hold for few samples.
fn wilson(of: u64, n: u64) -> (f64, f64, f64) {
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

fn written(calls: &[&Call]) -> u64 {
    calls.iter().filter_map(|call| call.bytes).sum()
}

fn median(calls: &[&Call]) -> f64 {
    let mut waits: Vec<f64> = calls.iter().map(|call| call.seconds()).collect();
    waits.sort_by(f64::total_cmp);
    waits.get(waits.len() / 2).copied().unwrap_or(0.0)
}

/// Returns by how many seconds a byte more makes a sync longer: the slope of the least squares.
/// Returns `None` if too few syncs have known bytes, or all have about the same.
fn seconds_a_byte(calls: &[&Call]) -> Option<f64> {
    const LEAST: usize = 20;
    const SPREAD: f64 = 16_384.0;
    let known = calls.iter().filter_map(|call| Some((call.bytes? as f64, call.seconds())));
    let known: Vec<_> = known.collect();
    if known.len() < LEAST {
        return None;
    }
    let n = known.len() as f64;
    let mean = known.iter().fold((0.0, 0.0), |sum, it| (sum.0 + it.0 / n, sum.1 + it.1 / n));
    let (mut variance, mut covariance) = (0.0, 0.0);
    for (bytes, seconds) in &known {
        variance += (bytes - mean.0).powi(2) / n;
        covariance += (bytes - mean.0) * (seconds - mean.1) / n;
    }
    (variance.sqrt() >= SPREAD).then(|| (covariance / variance).max(0.0))
}
