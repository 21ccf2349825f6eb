//! The source of each range of a disk: the whole state of a replayed disk, without its data.

use std::collections::BTreeMap;
use std::ops::Range;

/// Where the bytes of a range are stored; the number is the position of the first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rig) enum BytesFrom {
    /// In the log.
    Log(u64),
    /// In the file of data written since the cut.
    Scratch(u64),
    /// Nowhere: the bytes are zero.
    Zero,
}

impl BytesFrom {
    /// Returns the source that begins `bytes` bytes after this one.
    pub(in crate::rig) fn skip(self, bytes: u64) -> Self {
        match self {
            Self::Log(position) => Self::Log(position + bytes),
            Self::Scratch(position) => Self::Scratch(position + bytes),
            Self::Zero => Self::Zero,
        }
    }
}

/// Disjoint ranges, by their start. A position in none of them belongs to the layer below.
#[derive(Debug, Default)]
pub(in crate::rig) struct Extents {
    by_start: BTreeMap<u64, (u64, BytesFrom)>,
}

impl Extents {
    pub(in crate::rig) fn clear(&mut self) {
        self.by_start.clear();
    }

    /// Puts a range over the existing ranges.
    pub(in crate::rig) fn insert(&mut self, range: Range<u64>, source: BytesFrom) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        while let Some((&start, _)) = self.by_start.range(range.clone()).next() {
            self.by_start.remove(&start);
        }
        self.by_start.insert(range.start, (range.end, source));
    }

    /// Splits the range that crosses `at`, if there is one.
    fn split(&mut self, at: u64) {
        let Some((&start, entry)) = self.by_start.range_mut(..at).next_back() else {
            return;
        };
        let (end, source) = *entry;
        if end > at {
            entry.0 = at;
            self.by_start.insert(at, (end, source.skip(at - start)));
        }
    }

    /// Returns the parts of `range`, in order and without gaps; `None` is the layer below.
    pub(in crate::rig) fn pieces(&self, range: Range<u64>) -> Vec<(Range<u64>, Option<BytesFrom>)> {
        let first = self.by_start.range(..=range.start).next_back();
        let first = first.filter(|(_, (end, _))| *end > range.start).map(|(&start, _)| start);
        let from = first.unwrap_or(range.start);
        let (mut pieces, mut at) = (Vec::new(), range.start);
        for (&start, &(end, source)) in self.by_start.range(from..range.end) {
            if start > at {
                pieces.push((at..start, None));
                at = start;
            }
            let end = end.min(range.end);
            pieces.push((at..end, Some(source.skip(at - start))));
            at = end;
        }
        if at < range.end {
            pieces.push((at..range.end, None));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_in_the_middle_of_another_leaves_both_its_ends() {
        let mut extents = Extents::default();
        extents.insert(10..40, BytesFrom::Log(1000));
        extents.insert(20..30, BytesFrom::Zero);
        let expected = [
            (0..10, None),
            (10..20, Some(BytesFrom::Log(1000))),
            (20..30, Some(BytesFrom::Zero)),
            (30..40, Some(BytesFrom::Log(1020))),
            (40..50, None),
        ];
        assert_eq!(extents.pieces(0..50), expected);
        assert_eq!(extents.pieces(35..38), [(35..38, Some(BytesFrom::Log(1025)))]);
        assert_eq!(extents.pieces(45..46), [(45..46, None)]);
    }

    #[test]
    fn random_ranges_read_as_a_plain_array_would() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut extents, mut plain) = (Extents::default(), [None; 200]);
        for step in 0..2000u64 {
            let (a, b) = (random.u64(0..=200), random.u64(0..=200));
            let range = a.min(b)..a.max(b);
            extents.insert(range.clone(), BytesFrom::Log(step * 1000));
            for at in range.clone() {
                plain[at as usize] = Some(step * 1000 + at - range.start);
            }
            let mut read = Vec::new();
            for (piece, source) in extents.pieces(0..200) {
                for at in piece.clone() {
                    read.push(match source.map(|source| source.skip(at - piece.start)) {
                        Some(BytesFrom::Log(position)) => Some(position),
                        _ => None,
                    });
                }
            }
            assert_eq!(read, plain, "step {step}");
        }
    }
}
