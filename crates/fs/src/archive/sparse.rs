//! The data ranges of sparse files.

use std::io;
use std::os::fd::BorrowedFd;

use super::BLOCK;
use crate::extents::next_data;

/// A shorter hole is written as zeros, because it is not worth a piece of its own.
const WORTH: u64 = 64 << 10;

/// Offset and length in bytes of a piece of a file.
pub(super) type Piece = (u64, u64);

/// The pieces of a file that are not holes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Map {
    /// The file's length in bytes.
    pub(super) size: u64,
    /// The pieces in order.
    pub(super) pieces: Vec<Piece>,
}

impl Map {
    /// Returns the map from an archive if it is consistent with `stored` bytes of content.
    pub(super) fn checked(size: u64, pieces: Vec<Piece>, stored: u64) -> Option<Self> {
        let (mut end, mut sum) = (0_u64, 0_u64);
        for (offset, length) in pieces.iter().copied().filter(|(_, length)| *length > 0) {
            // The content of each piece must start at a block: readers differ on what follows
            // a piece that ends within a block.
            if offset < end || !sum.is_multiple_of(BLOCK) {
                return None;
            }
            end = offset.checked_add(length)?;
            sum = sum.checked_add(length)?;
        }
        let fits = end <= size && i64::try_from(size).is_ok() && sum == stored;
        fits.then_some(Self { size, pieces })
    }

    /// Returns the map of a file of `size` bytes if its holes are worth a map.
    pub(super) fn read(file: BorrowedFd<'_>, size: u64) -> io::Result<Option<Self>> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut end = 0;
        while end < size {
            let Some(data) = next_data(file, end, size)? else { break };
            let start = data.start / BLOCK * BLOCK;
            end = data.end.next_multiple_of(BLOCK).min(size);
            match pieces.last_mut() {
                Some((offset, length)) if start.saturating_sub(*offset + *length) < WORTH => {
                    *length = end - *offset;
                }
                _ if start < WORTH => pieces.push((0, end)),
                _ => pieces.push((start, end - start)),
            }
        }
        let map = Self { size, pieces: with_end(pieces, size) };
        Ok((map.stored() < size).then_some(map))
    }

    /// Returns the number of content bytes that are not holes.
    pub(super) fn stored(&self) -> u64 {
        self.pieces.iter().map(|(_, length)| length).sum()
    }

    /// Returns the map's text, which GNU's PAX format 1.0 puts before the content, in whole
    /// blocks.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut text = format!("{}\n", self.pieces.len()).into_bytes();
        for (offset, length) in &self.pieces {
            text.extend_from_slice(format!("{offset}\n{length}\n").as_bytes());
        }
        text.resize(text.len().next_multiple_of(BLOCK as usize), 0);
        text
    }
}

/// Marks the file's end by an empty piece, as GNU tar does. A short hole at the end becomes
/// part of the last piece.
fn with_end(mut pieces: Vec<Piece>, size: u64) -> Vec<Piece> {
    match pieces.last_mut() {
        Some((offset, length)) if size - (*offset + *length) < WORTH => *length = size - *offset,
        None if size < WORTH => pieces.push((0, size)),
        _ => pieces.push((size, 0)),
    }
    pieces
}

/// Pairs `numbers`: offset, length, offset, length.
pub(super) fn pairs(numbers: &[u64]) -> Option<Vec<Piece>> {
    let pairs = numbers.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| (pair[0], pair[1])).collect())
}

/// Parses a decimal number of a map.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_makes_no_sense_is_none() {
        assert!(Map::checked(9000, vec![(0, 512), (4096, 10), (9000, 0)], 522).is_some());
        for (size, pieces, stored) in [
            (9000, vec![(0, 512), (100, 10)], 522),
            (9000, vec![(0, 10), (4096, 10)], 20),
            (9000, vec![(0, 512)], 1024),
            (100, vec![(0, 512)], 512),
            (u64::MAX, vec![(0, 512)], 512),
            (u64::MAX, vec![(u64::MAX, 512)], 512),
        ] {
            assert_eq!(Map::checked(size, pieces.clone(), stored), None, "{pieces:?}");
        }
    }

    #[test]
    fn a_map_as_text_is_whole_blocks() {
        let map = Map { size: 70_000, pieces: vec![(0, 512), (70_000, 0)] };
        assert_eq!(map.text().len(), 512);
        assert!(map.text().starts_with(b"2\n0\n512\n70000\n0\n\0"));
    }
}
