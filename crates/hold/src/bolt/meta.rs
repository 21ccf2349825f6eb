//! The two meta pages, of which a transaction replaces the older one.

use super::damage::{Damage, Problem};
use super::window::number;
use super::{Checked, Failure};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The length of the header of a page.
pub(super) const HEADER: usize = 16;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// The flag of a meta page in its header.
const FLAG: u16 = 0x04;
/// The bytes of a meta after the header of its page, and those that its checksum covers.
const LENGTH: usize = 64;
const SUMMED: usize = 56;
/// A meta states this page for the list of free pages if there is no list.
const NO_FREELIST: u64 = u64::MAX;
/// bbolt reads this many bytes to find the page size, and takes no shorter file.
const LEAST_FILE: u64 = 4096;
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 512..=16 << 20;

/// The meta page in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub(super) page_size: u64,
    /// The root page of the root bucket.
    pub(super) root: u64,
    /// The page with the list of free pages.
    pub(super) freelist: Option<u64>,
    /// The number of pages: all page numbers are less.
    pub(super) high_water: u64,
    transaction: u64,
}

/// What a meta page is.
enum State {
    Valid(Meta),
    Unsummed,
    Invalid,
}

impl Meta {
    /// Returns the valid meta page of the latest transaction.
    pub(super) fn choose(file: &File) -> Checked<Self> {
        let length = file.metadata()?.len();
        if length < LEAST_FILE {
            return Err(Damage::new(0, Problem::Short(2)).into());
        }
        let first = read(file, 0)?;
        // bbolt 1.3.6 looks for the other meta page by the machine's page size alone.
        let size = match &first {
            State::Valid(meta) => meta.page_size,
            _ => rustix::param::page_size() as u64,
        };
        if !PAGE_SIZES.contains(&size) {
            return Err(Damage::new(0, Problem::PageSize(size)).into());
        }
        if length < 2 * size {
            return Err(Damage::new(1, Problem::Short(2)).into());
        }
        let second = read(file, size)?;
        let (page, meta) = match (first, second) {
            (State::Unsummed, _) => return Err(Damage::new(0, Problem::Unsummed).into()),
            (_, State::Unsummed) => return Err(Damage::new(1, Problem::Unsummed).into()),
            (State::Valid(first), State::Valid(second)) => {
                match second.transaction > first.transaction {
                    true => (1, second),
                    false => (0, first),
                }
            }
            (State::Valid(first), State::Invalid) => (0, first),
            (State::Invalid, State::Valid(second)) => (1, second),
            (State::Invalid, State::Invalid) => {
                return Err(Damage::new(0, Problem::Metas).into());
            }
        };
        let problem = |problem| Err(Failure::Damage(Damage::new(page, problem)));
        if meta.page_size != size {
            return problem(Problem::PageSize(meta.page_size));
        }
        // bbolt reads one of the pages, but its check wants both headers (1.4).
        for page in [0, 1] {
            if let Some(found) = meta.header_problem(file, page)? {
                return Err(Damage::new(page, found).into());
            }
        }
        if let Some(wrong) = meta.impossible_page() {
            return problem(Problem::MetaPage(wrong));
        }
        let whole = length / size;
        if meta.high_water > whole {
            return Err(Damage::new(whole, Problem::Short(meta.high_water)).into());
        }
        Ok(meta)
    }

    fn header_problem(&self, file: &File, page: u64) -> io::Result<Option<Problem>> {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, page * self.page_size)?;
        let id = u64::from_ne_bytes(number(&header, 0));
        let flags = u16::from_ne_bytes(number(&header, 8));
        Ok(match (id == page, flags == FLAG) {
            (false, _) => Some(Problem::Id(id)),
            (_, false) => Some(Problem::Flags(flags)),
            _ => None,
        })
    }

    /// Returns the page that the meta page names and that cannot be there.
    fn impossible_page(&self) -> Option<u64> {
        let named = [Some(self.root), self.freelist];
        named.into_iter().flatten().find(|&page| !self.is_possible(page))
    }

    /// Whether `page` can be a page other than the meta pages.
    pub(super) fn is_possible(&self, page: u64) -> bool {
        (2..self.high_water).contains(&page)
    }
}

/// Reads the meta of the page at `at`. Only a file that is being truncated ends before it.
fn read(file: &File, at: u64) -> io::Result<State> {
    let mut bytes = [0; LENGTH];
    file.read_exact_at(&mut bytes, at + HEADER as u64)?;
    let word = |at| u32::from_ne_bytes(number(&bytes, at));
    let long = |at| u64::from_ne_bytes(number(&bytes, at));
    if (word(0), word(4)) != (MAGIC, VERSION) {
        return Ok(State::Invalid);
    }
    let checksum = long(SUMMED);
    if checksum != fnv(&bytes[..SUMMED]) {
        return Ok(if checksum == 0 { State::Unsummed } else { State::Invalid });
    }
    Ok(State::Valid(Meta {
        page_size: word(8).into(),
        // The sequence of the root bucket, at 24, is not in use.
        root: long(16),
        freelist: Some(long(32)).filter(|&page| page != NO_FREELIST),
        high_water: long(40),
        transaction: long(48),
    }))
}

/// Returns the FNV-1a hash of `bytes`, of 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// Whether `file` has the magic number in a meta page: in the first, or in the second by the
/// page size of the first or of this machine.
pub(super) fn has_magic(file: &File) -> io::Result<bool> {
    let word = |at: u64| {
        let mut bytes = [0; 4];
        match file.read_exact_at(&mut bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(u32::from_ne_bytes(bytes))),
        }
    };
    let magic = HEADER as u64;
    let second = rustix::param::page_size() as u64 + magic;
    Ok(word(magic)? == Some(MAGIC) || word(second)? == Some(MAGIC))
}

#[cfg(test)]
pub(super) mod sums {
    use super::*;

    /// Writes the right checksum into the meta of the page that starts `page`.
    pub(in crate::bolt) fn mend(page: &mut [u8]) {
        if let Some(meta) = page.get_mut(HEADER..HEADER + LENGTH) {
            let sum = fnv(&meta[..SUMMED]);
            meta[SUMMED..].copy_from_slice(&sum.to_ne_bytes());
        }
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Values of the specification (draft-eastlake-fnv).
        assert_eq!(fnv(b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fnv(b"a"), 0xAF63_DC4C_8601_EC8C);
    }
}
