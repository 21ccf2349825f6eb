//! The meta pages and the free list of a database of bbolt.
//!
//! The layout is that of go.etcd.io/bbolt, in the byte order of this machine.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

/// The length of the header of a page.
pub const HEADER: u64 = 16;
/// The number that each meta page has.
pub const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// The bytes of a meta page that its checksum covers.
pub const SUMMED: usize = 56;
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 512..=16 << 20;
/// The flag of a page with the free list.
const FREE_LIST: u16 = 0x10;
/// In the header, the count of a list that has its count in front of its entries.
const COUNT_IS_FIRST: u16 = 0xFFFF;
/// In place of the number of a page, where the option NoFreelistSync leaves the list out.
const NO_FREE_LIST: u64 = u64::MAX;
/// How often a database that changes is looked at.
const LOOKS: usize = 10;

/// What the meta page of a database says.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// The bytes of a page.
    pub page_size: u64,
    /// The number of pages: all page numbers are less.
    pub pages: u64,
    /// The root page of the root bucket.
    pub root: u64,
    /// The first page of the free list; none with the option NoFreelistSync.
    pub free_list: Option<u64>,
    /// The number of the latest transaction: one more with each.
    pub transaction: u64,
}

/// The pages that a database does not use. Each transaction writes the whole list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeList {
    /// How many pages are free.
    pub pages: u64,
    /// The bytes of the pages with the list.
    pub bytes: u64,
}

impl Meta {
    /// Reads the valid meta page of the latest transaction.
    ///
    /// # Errors
    /// Those of reading the file, and [`ErrorKind::InvalidData`] if no meta page is whole.
    pub fn latest(file: &File) -> io::Result<Self> {
        let first = Self::read(file, 0)?;
        let size = first.map_or(rustix::param::page_size() as u64, |meta| meta.page_size);
        let second = Self::read(file, size)?;
        let latest = first.into_iter().chain(second).max_by_key(|meta| meta.transaction);
        let pages = file.metadata()?.len() / size;
        let is_whole = |meta: &Self| {
            meta.page_size == size && meta.pages <= pages && (2..meta.pages).contains(&meta.root)
        };
        latest.filter(is_whole).ok_or_else(|| damaged(0))
    }

    /// Reads the meta page at `at`; `None` if it is not valid.
    fn read(file: &File, at: u64) -> io::Result<Option<Self>> {
        let bytes: [u8; SUMMED + 8] = match read(file, at + HEADER) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            bytes => bytes?,
        };
        let word = |at| u32::from_ne_bytes(part(&bytes, at));
        let long = |at| u64::from_ne_bytes(part(&bytes, at));
        let page_size = word(8).into();
        let is_valid = (word(0), word(4)) == (MAGIC, VERSION)
            && long(SUMMED) == checksum(&bytes[..SUMMED])
            && PAGE_SIZES.contains(&page_size);
        let meta = Self {
            page_size,
            root: long(16),
            free_list: Some(long(32)).filter(|page| *page != NO_FREE_LIST),
            pages: long(40),
            transaction: long(48),
        };
        Ok(is_valid.then_some(meta))
    }

    /// Returns where the page `page` is, to which the bytes at `from` refer.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`]: the database has no such page.
    pub fn place(&self, page: u64, from: u64) -> io::Result<u64> {
        if (2..self.pages).contains(&page) { Ok(page * self.page_size) } else { Err(damaged(from)) }
    }

    /// Reads the header of the free list.
    fn free_list(&self, file: &File) -> io::Result<Option<FreeList>> {
        let Some(page) = self.free_list else { return Ok(None) };
        let at = self.place(page, HEADER)?;
        let header: [u8; HEADER as usize + 8] = read(file, at)?;
        let count = u16::from_ne_bytes(part(&header, 10));
        let pages = match count {
            COUNT_IS_FIRST => u64::from_ne_bytes(part(&header, HEADER as usize)),
            count => count.into(),
        };
        let more = u64::from(u32::from_ne_bytes(part(&header, 12)));
        let is_whole = u16::from_ne_bytes(part(&header, 8)) == FREE_LIST
            && pages < self.pages
            && more < self.pages - page;
        let list = FreeList { pages, bytes: (more + 1) * self.page_size };
        if is_whole { Ok(Some(list)) } else { Err(damaged(at)) }
    }
}

/// Reads the latest meta page and the free list of a database that another process may write
/// meanwhile. Takes no lock.
///
/// # Errors
/// Those of reading the file, and [`ErrorKind::InvalidData`] if one of both is damaged, or changes
/// at each look.
pub fn look(file: &File) -> io::Result<(Meta, Option<FreeList>)> {
    let mut seen = Err(damaged(0));
    for _ in 0..LOOKS {
        let meta = Meta::latest(file)?;
        let list = meta.free_list(file);
        // The transaction after the next one may write to the pages of this list.
        let is_same = Meta::latest(file)?.transaction <= meta.transaction.saturating_add(1);
        seen = list.map(|list| (meta, list));
        if is_same {
            return seen;
        }
    }
    seen.and(Err(io::Error::new(ErrorKind::InvalidData, "it changes at each look")))
}

/// Reads `N` bytes at `at`.
///
/// # Errors
/// Those of reading the file.
pub fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at).map(|()| bytes)
}

/// Returns the `N` bytes of `bytes` from `at` on.
pub fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// Returns the error about the page at `at`.
pub fn damaged(at: u64) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the page at byte {at} is damaged"))
}

/// Returns the checksum of a meta page: the FNV-1a hash of `bytes`, of 64 bits.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const PAGE: usize = 4_096;

    /// Returns a meta page of `transaction` whose free list begins at the page `list`.
    fn meta_page(transaction: u64, list: u64, pages: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        let header = HEADER as usize;
        for (at, word) in [(0, MAGIC), (4, VERSION), (8, PAGE as u32)] {
            put(header + at, &word.to_ne_bytes());
        }
        for (at, long) in [(16, 3), (32, list), (40, pages), (48, transaction)] {
            put(header + at, &u64::to_ne_bytes(long));
        }
        let sum = checksum(&page[header..header + SUMMED]);
        page[header + SUMMED..header + SUMMED + 8].copy_from_slice(&sum.to_ne_bytes());
        page
    }

    /// Returns the first page of a free list of `count` pages, which goes on in `more` pages.
    fn list_page(count: u64, more: u32) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        page[8..10].copy_from_slice(&FREE_LIST.to_ne_bytes());
        let short = u16::try_from(count).unwrap_or(COUNT_IS_FIRST);
        page[10..12].copy_from_slice(&short.to_ne_bytes());
        page[12..16].copy_from_slice(&more.to_ne_bytes());
        if short == COUNT_IS_FIRST {
            page[16..24].copy_from_slice(&count.to_ne_bytes());
        }
        page
    }

    fn database(parts: &[Vec<u8>], pages: u64) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&parts.concat()).unwrap();
        file.set_len(pages * PAGE as u64).unwrap();
        file
    }

    #[test]
    fn the_list_of_the_latest_transaction_counts() {
        let both = [meta_page(8, 3, 9), meta_page(7, 2, 9), list_page(5, 0), list_page(2, 3)];
        let (meta, list) = look(&database(&both, 9)).unwrap();
        assert_eq!((meta.transaction, list), (8, Some(FreeList { pages: 2, bytes: 4 * 4_096 })));
        // The checksum of the later one is wrong, as of a page that is being written.
        let mut torn = both;
        torn[0][60] ^= 1;
        let (meta, list) = look(&database(&torn, 9)).unwrap();
        assert_eq!((meta.transaction, list), (7, Some(FreeList { pages: 5, bytes: 4_096 })));
    }

    #[test]
    fn a_long_list_has_its_count_in_front_and_a_database_may_have_none() {
        let of = |list, page| {
            let pages = [meta_page(1, list, 90_000), meta_page(0, list, 90_000), page];
            look(&database(&pages, 90_000)).map(|(_, list)| list)
        };
        let long = FreeList { pages: 70_000, bytes: 138 * 4_096 };
        assert_eq!(of(2, list_page(70_000, 137)).unwrap(), Some(long));
        assert_eq!(of(NO_FREE_LIST, list_page(1, 0)).unwrap(), None);
        // No list, more pages than there are, a list beyond the end.
        for (list, page) in [
            (2, vec![0; PAGE]),
            (2, list_page(90_000, 175)),
            (2, list_page(1, 90_000)),
            (90_000, vec![]),
        ] {
            assert_eq!(of(list, page).unwrap_err().kind(), ErrorKind::InvalidData);
        }
    }
}
