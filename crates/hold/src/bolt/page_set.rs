//! A set of page numbers, as ranges.

use std::collections::BTreeMap;

/// A set of page numbers. Neighbouring ranges are one range, so that the set of a whole
/// database is small however large the database is.
#[derive(Debug, Default)]
pub(super) struct PageSet {
    /// The first page of each range, and the page after its last.
    ranges: BTreeMap<u64, u64>,
}

impl PageSet {
    /// Adds the `count` pages from `start` on.
    ///
    /// # Errors
    /// The first of these pages that is already in the set. Then none is added.
    pub(super) fn insert(&mut self, start: u64, count: u64) -> Result<(), u64> {
        let end = start.saturating_add(count);
        let before = self.ranges.range(..=start).next_back().map(|(&from, &to)| (from, to));
        let after = self.ranges.range(start..).next().map(|(&from, &to)| (from, to));
        if before.is_some_and(|(_, to)| to > start) {
            return Err(start);
        }
        if let Some((from, _)) = after.filter(|&(from, _)| from < end) {
            return Err(from);
        }
        let from = before.filter(|&(_, to)| to == start).map_or(start, |(from, _)| from);
        let to = match after.filter(|&(from, _)| from == end) {
            Some((next, to)) => {
                self.ranges.remove(&next);
                to
            }
            None => end,
        };
        self.ranges.insert(from, to);
        Ok(())
    }

    /// Returns the first page below `end` that is not in the set.
    pub(super) fn first_gap(&self, end: u64) -> Option<u64> {
        let gap = self.ranges.get(&0).copied().unwrap_or(0);
        (gap < end).then_some(gap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_together_and_never_overlap() {
        let mut set = PageSet::default();
        assert_eq!(set.first_gap(1), Some(0));
        for (start, count) in [(0, 2), (5, 3), (3, 2)] {
            set.insert(start, count).unwrap();
        }
        assert_eq!((set.first_gap(8), set.first_gap(2)), (Some(2), None));
        for (start, count, first) in [(7, 1, 7), (1, 2, 1), (2, 9, 3), (4, 1, 4)] {
            assert_eq!(set.insert(start, count), Err(first));
        }
        set.insert(2, 1).unwrap();
        assert_eq!(set.ranges.len(), 1);
        assert_eq!((set.first_gap(8), set.first_gap(9)), (None, Some(8)));
    }
}
