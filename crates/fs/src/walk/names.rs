//! Lists of names in few allocations, and directories read in pieces.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

/// Names in the order in which they were added, in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

#[derive(Debug, Clone, Copy)]
struct Item {
    start: u32,
    kind: FileType,
    inode: u64,
}

impl Names {
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.items.clear();
    }

    pub fn push(&mut self, name: &CStr, kind: FileType, inode: u64) {
        // A list stays far below 4 GiB, because directories are read in pieces.
        let start = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
        self.items.push(Item { start, kind, inode });
    }

    /// Returns the name at `index`, and the type of the entry (`d_type`), which may be unknown.
    pub fn get(&self, index: usize) -> (&CStr, FileType) {
        let item = self.items[index];
        let from = self.bytes.get(item.start as usize..).unwrap_or_default();
        (CStr::from_bytes_until_nul(from).unwrap_or_default(), item.kind)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&CStr, FileType)> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Sorts by inode number, the order in which most file systems store inodes on the disk.
    pub fn sort(&mut self) {
        self.items.sort_unstable_by_key(|item| item.inode);
    }

    pub fn pop(&mut self) -> Option<CString> {
        let name = self.get(self.items.len().checked_sub(1)?).0.to_owned();
        self.items.pop();
        if self.items.is_empty() {
            self.bytes.clear();
        }
        Some(name)
    }

    pub fn split_off(&mut self, index: usize) -> Self {
        let mut rest = Self::default();
        for index in index..self.items.len() {
            let (name, kind) = self.get(index);
            rest.push(name, kind, self.items[index].inode);
        }
        self.items.truncate(index);
        rest
    }
}

/// The size of the buffer of one getdents64(2), in bytes: about a thousand short names.
pub(crate) const PIECE: usize = 32 << 10;

/// Where a piece of a directory ended.
pub(crate) enum PieceEnd {
    /// At the end of the directory.
    Whole,
    /// The directory continues at this position (`d_off` of getdents64(2)).
    At(u64),
}

/// Reads the next piece of `directory`. Adds entries that `d_type` calls directories to
/// `directories` and all others to `others`. The capacity of `buffer` is the size of a piece.
pub(crate) fn read(
    directory: &OwnedFd,
    buffer: &mut Vec<u8>,
    directories: &mut Names,
    others: &mut Names,
) -> Result<PieceEnd, Errno> {
    buffer.clear();
    let spare: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
    let mut list = RawDir::new(directory, spare);
    loop {
        let Some(entry) = list.next() else { return Ok(PieceEnd::Whole) };
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type());
        match (kind, name.to_bytes()) {
            (FileType::Directory, b"." | b"..") => {}
            (FileType::Unknown, b"." | b"..") => {}
            (FileType::Directory, _) => directories.push(name, kind, entry.ino()),
            _ => others.push(name, kind, entry.ino()),
        }
        let position = entry.next_entry_cookie();
        if list.is_buffer_empty() {
            return Ok(PieceEnd::At(position));
        }
    }
}
