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
use synconce_probe::bolt::{HEADER, MAGIC, Meta, damaged, part, read};

/// The length of an element of a page.
const ELEMENT: u64 = 16;
/// The flag of a branch page, of a leaf page, and of an element that is a bucket.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const BUCKET: u32 = 0x01;

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
    visit(&meta, &file, meta.root * meta.page_size, &mut |leaf| {
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
    visit(&meta, &file, root, &mut |_| {
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

/// Calls `each` for each element of the leaf pages of the tree whose root page is at `root`.
fn visit(
    meta: &Meta,
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
                waiting.push(meta.place(u64::from_ne_bytes(part(&bytes, 8)), at)?);
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

#[cfg(test)]
mod fuzz;
