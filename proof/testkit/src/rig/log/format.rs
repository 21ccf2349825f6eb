//! The log's format: a header of 32 bytes per event, followed by the data of a write or the
//! name of a mark.
//!
//! An event's number is its position in the file and is not stored.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The length of a header.
pub(in crate::rig) const HEADER: u64 = 32;
/// Identifies the file as a log of this version.
const MAGIC: u32 = u32::from_le_bytes(*b"rig\x01");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rig) enum EntryKind {
    Write = 1,
    Discard = 2,
    Failed = 3,
    FlushBegin = 4,
    FlushEnd = 5,
    FlushFailed = 6,
    Mark = 7,
}

/// The header of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rig) struct Header {
    pub(in crate::rig) kind: EntryKind,
    /// Offset on the disk; for the end of a flush, the number of its begin.
    pub(in crate::rig) offset: u64,
    pub(in crate::rig) length: u64,
    pub(in crate::rig) nanos: u64,
}

impl Header {
    /// Returns how many bytes follow the header.
    pub(in crate::rig) fn payload(&self) -> u64 {
        match self.kind {
            EntryKind::Write | EntryKind::Mark => self.length,
            _ => 0,
        }
    }

    pub(super) fn bytes(&self) -> [u8; HEADER as usize] {
        let mut bytes = [0; HEADER as usize];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        for (place, number) in (1..).zip([self.offset, self.length, self.nanos]) {
            bytes[place * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(in crate::rig) fn read(file: &File, position: u64) -> io::Result<Self> {
        let mut bytes = [0; HEADER as usize];
        file.read_exact_at(&mut bytes, position)?;
        Self::parse(&bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("no event at byte {position}"))
        })
    }

    fn parse(bytes: &[u8; HEADER as usize]) -> Option<Self> {
        let words = bytes.as_chunks::<8>().0;
        let number = |place: usize| u64::from_le_bytes(words[place]);
        let (magic, kind) = (number(0) as u32, (number(0) >> 32) as u32);
        let kinds = [
            EntryKind::Write,
            EntryKind::Discard,
            EntryKind::Failed,
            EntryKind::FlushBegin,
            EntryKind::FlushEnd,
            EntryKind::FlushFailed,
            EntryKind::Mark,
        ];
        let kind = kinds.into_iter().find(|known| *known as u32 == kind)?;
        (magic == MAGIC).then_some(Self {
            kind,
            offset: number(1),
            length: number(2),
            nanos: number(3),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_as_it_was_written() {
        let header =
            Header { kind: EntryKind::Discard, offset: 1 << 40, length: u64::MAX, nanos: 7 };
        assert_eq!(Header::parse(&header.bytes()), Some(header));
        assert_eq!(Header::parse(&[0; 32]), None);
    }
}
