//! Recognizes databases of bbolt, and counts the keys of a bucket.
//!
//! The layout is that of go.etcd.io/bbolt, in the byte order of this machine. A file that
//! changes meanwhile gives wrong results, so the database must not be in use.

use super::open::open_regular;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The length of the header of a page, and of an element of a page.
const HEADER: u64 = 16;
const ELEMENT: u64 = 16;
/// The flag of a branch page, of a leaf page, and of an element that is a bucket.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const BUCKET: u32 = 0x01;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// The bytes of a meta page that its checksum covers.
const SUMMED: usize = 56;
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 512..=16 << 20;

/// What the meta page of a database says.
#[derive(Clone, Copy)]
struct Meta {
    page_size: u64,
    /// The number of pages: all page numbers are less.
    pages: u64,
    /// The root page of the root bucket.
    root: u64,
    transaction: u64,
}

/// An element of a leaf page.
struct Leaf {
    is_bucket: bool,
    key: u64,
    key_length: usize,
}

/// Returns the number of keys in `bucket`, a bucket at the top of the database in the file
/// `path`; 0 if there is no such bucket.
///
/// # Errors
/// Those of reading the file, and [`ErrorKind::InvalidData`] if a page on the way is damaged.
pub(super) fn count_keys(path: &Path, bucket: &[u8]) -> io::Result<usize> {
    let file = open_regular(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(0);
    }
    let meta = Meta::latest(&file)?;
    let mut value = None;
    meta.visit(&file, meta.root * meta.page_size, &mut |leaf| {
        if leaf.is_bucket && leaf.key_length == bucket.len() {
            let mut key = vec![0; leaf.key_length];
            file.read_exact_at(&mut key, leaf.key)?;
            if key == bucket {
                value = Some(leaf.key + leaf.key_length as u64);
            }
        }
        Ok(())
    })?;
    let Some(value) = value else { return Ok(0) };
    // The number of the root page and a sequence number. Without a root page, the only page of
    // the bucket follows.
    let root = match u64::from_ne_bytes(read(&file, value)?) {
        0 => value + HEADER,
        page => meta.place(page, value)?,
    };
    let mut count = 0;
    meta.visit(&file, root, &mut |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

/// Whether the file `path` has bbolt's magic number in a meta page: in the first, or in the
/// second by the page size of this machine.
///
/// # Errors
/// Those of opening and reading the file.
pub(super) fn is_bolt(path: &Path) -> io::Result<bool> {
    let file = open_regular(path)?;
    for page in [0, rustix::param::page_size() as u64] {
        match read(&file, page + HEADER) {
            Ok(word) if u32::from_ne_bytes(word) == MAGIC => return Ok(true),
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
    }
    Ok(false)
}

impl Meta {
    /// Reads the valid meta page of the latest transaction.
    fn latest(file: &File) -> io::Result<Self> {
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
            && long(SUMMED) == fnv(&bytes[..SUMMED])
            && PAGE_SIZES.contains(&page_size);
        let meta = Self { page_size, root: long(16), pages: long(40), transaction: long(48) };
        Ok(is_valid.then_some(meta))
    }

    /// Returns where the page `page` is, to which the bytes at `from` refer.
    fn place(&self, page: u64, from: u64) -> io::Result<u64> {
        if (2..self.pages).contains(&page) { Ok(page * self.page_size) } else { Err(damaged(from)) }
    }

    /// Calls `each` for each element of the leaf pages of the tree whose root page is at `root`.
    fn visit(
        &self,
        file: &File,
        root: u64,
        each: &mut dyn FnMut(Leaf) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut waiting, mut seen) = (vec![root], BTreeSet::new());
        while let Some(page) = waiting.pop() {
            let header: [u8; HEADER as usize] = read(file, page)?;
            let flags = u16::from_ne_bytes(part(&header, 8));
            if !seen.insert(page) || ![BRANCH, LEAF].contains(&flags) {
                return Err(damaged(page));
            }
            for index in 0..u64::from(u16::from_ne_bytes(part(&header, 10))) {
                let at = page + HEADER + index * ELEMENT;
                let bytes: [u8; ELEMENT as usize] = read(file, at)?;
                let word = |at| u32::from_ne_bytes(part(&bytes, at));
                if flags == BRANCH {
                    waiting.push(self.place(u64::from_ne_bytes(part(&bytes, 8)), at)?);
                    continue;
                }
                each(Leaf {
                    is_bucket: word(0) & BUCKET != 0,
                    key: at + u64::from(word(4)),
                    key_length: word(8) as usize,
                })?;
            }
        }
        Ok(())
    }
}

fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at).map(|()| bytes)
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

fn damaged(at: u64) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the page at byte {at} is damaged"))
}

/// Returns the FNV-1a hash of `bytes`, of 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod fuzz;
