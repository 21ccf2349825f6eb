//! The part of a build context that is sent, and what the whole would cost at the same pace.

use super::Amount;
use crate::units::seconds;
use serde::Serialize;
use std::path::Path;

/// The most entries that are sent.
const ENTRIES: usize = 50_000;
/// The most bytes of an archive that are sent.
pub(super) const BYTES: u64 = 256 << 20;

/// What one way of sending costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SendingCost {
    /// The part of the context that was sent.
    pub sent: Amount,
    /// The time for this part.
    pub seconds: f64,
    /// The time for the whole context at the same pace, by bytes and by entries: the shorter.
    pub at_least: f64,
    /// The longer.
    pub at_most: f64,
}

/// The beginning of a context, in the order of a walk.
#[derive(Default)]
pub(super) struct Beginning {
    /// Relative paths.
    pub paths: Vec<String>,
    bytes: u64,
}

impl Beginning {
    /// Adds an entry, unless the beginning is long enough.
    pub(super) fn add(&mut self, path: &str, length: u64) {
        if self.paths.len() < ENTRIES && self.bytes < BYTES {
            self.paths.push(path.to_owned());
            self.bytes += Amount { entries: 1, bytes: length }.archived();
        }
    }

    /// Returns what the beginning takes on a disk.
    pub(super) fn on_disk(&self) -> u64 {
        self.bytes.min(BYTES) + 4096 * self.paths.len() as u64
    }
}

/// A context, and the part of it that is sent.
pub(super) struct SentContext<'a> {
    pub root: &'a Path,
    /// What a build sends.
    pub whole: Amount,
    pub beginning: &'a Beginning,
}

impl SendingCost {
    /// Returns the cost of `whole`, if `sent` took `seconds`.
    pub(super) fn extrapolated(sent: Amount, seconds: f64, whole: Amount) -> Self {
        let times = |sent: u64, whole: u64| (whole as f64 / sent.max(1) as f64).max(1.0);
        let by_bytes = times(sent.archived(), whole.archived());
        let by_entries = times(sent.entries, whole.entries);
        let (at_least, at_most) = (by_bytes.min(by_entries), by_bytes.max(by_entries));
        Self { sent, seconds, at_least: seconds * at_least, at_most: seconds * at_most }
    }

    /// Returns the time for the whole context.
    pub(super) fn shown(&self) -> String {
        let [least, most] = [self.at_least, self.at_most].map(seconds);
        if least == most { least } else { format!("{least} to {most}") }
    }

    /// Seconds for a byte.
    pub(super) fn pace(&self) -> f64 {
        self.seconds / self.sent.archived().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Amount = Amount { entries: 10, bytes: 0 };

    #[test]
    fn a_part_stands_for_the_whole_by_bytes_and_by_entries() {
        let whole = SendingCost::extrapolated(SMALL, 2.0, SMALL);
        assert_eq!((whole.at_least, whole.at_most, &*whole.shown()), (2.0, 2.0, "2.0 s"));
        let large = Amount { entries: 20, bytes: 9 * 20 * 512 };
        let part = SendingCost::extrapolated(SMALL, 2.0, large);
        assert_eq!((part.at_least, part.at_most, &*part.shown()), (4.0, 40.0, "4.0 s to 40.0 s"));
    }

    #[test]
    fn a_beginning_is_bounded_by_bytes_and_by_entries() {
        let mut beginning = Beginning::default();
        beginning.add("large", BYTES);
        beginning.add("more", 1);
        assert_eq!((beginning.paths.len(), beginning.on_disk()), (1, BYTES + 4096));
        let mut many = Beginning::default();
        (0..=ENTRIES).for_each(|_| many.add("small", 0));
        assert_eq!(many.paths.len(), ENTRIES);
    }
}
