//! Checks whether an entry is the same in both trees.

use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Statx, readlinkat};
use rustix::io::{Errno, pread};

use super::{CompareThread, Comparison, Side};
use crate::extents::next_data;
use crate::walk::directory::Mounts;
use crate::walk::directory::kind_of;
use crate::xattrs::{NamedFile, all};
use crate::{Error, grow};

/// The number of bytes that are compared at a time.
const BUFFER: usize = 256 << 10;

/// An entry of both trees; "." for the directories themselves.
pub(super) struct Sides<'a> {
    pub first: BorrowedFd<'a>,
    pub second: BorrowedFd<'a>,
    pub name: &'a CStr,
}

impl Comparison<'_> {
    /// Returns whether all compared properties are equal.
    pub(super) fn agree(
        &self,
        sides: &Sides<'_>,
        (a, b): &(Statx, Statx),
        own: &mut CompareThread<'_>,
        path: &dyn Fn() -> Vec<u8>,
    ) -> Result<bool, Error> {
        if plain(a) != plain(b) {
            return Ok(false);
        }
        let attributes = |side, directory| {
            all(&NamedFile::in_directory(directory, sides.name.to_bytes())).map_err(|errno| {
                self.fail(side, "cannot read the extended attributes of", &path(), errno)
            })
        };
        if attributes(Side::First, sides.first)? != attributes(Side::Second, sides.second)? {
            return Ok(false);
        }
        match kind_of(a) {
            FileType::Symlink => {
                let target = |side, directory| {
                    readlinkat(directory, sides.name, Vec::new())
                        .map_err(|errno| self.fail(side, "cannot read the link", &path(), errno))
                };
                Ok(target(Side::First, sides.first)? == target(Side::Second, sides.second)?)
            }
            FileType::RegularFile => self.content(sides, a.stx_size, own, path),
            _ => Ok(true),
        }
    }

    fn content(
        &self,
        sides: &Sides<'_>,
        size: u64,
        own: &mut CompareThread<'_>,
        path: &dyn Fn() -> Vec<u8>,
    ) -> Result<bool, Error> {
        let open = |side, directory| {
            Mounts::Stop
                .file(directory, sides.name)
                .map_err(|errno| self.fail(side, "cannot open", &path(), errno))
        };
        let (first, second) = (open(Side::First, sides.first)?, open(Side::Second, sides.second)?);
        let fail = |(side, errno)| self.fail(side, "cannot read", &path(), errno);
        grow(&mut own.buffers.0, BUFFER);
        grow(&mut own.buffers.1, BUFFER);
        let mut data = Data::new([&first, &second], size);
        while let Some(piece) = data.next().map_err(fail)? {
            let length = usize::try_from(piece.end - piece.start).unwrap_or(BUFFER);
            let (one, other) = (&mut own.buffers.0[..length], &mut own.buffers.1[..length]);
            let filled =
                fill(&first, one, piece.start).map_err(|errno| fail((Side::First, errno)))?;
            let also =
                fill(&second, other, piece.start).map_err(|errno| fail((Side::Second, errno)))?;
            if one[..filled] != other[..also] {
                return Ok(false);
            }
            own.tally.bytes(filled as u64)?;
            if filled < length {
                // Both files have become shorter.
                return Ok(true);
            }
        }
        Ok(true)
    }
}

/// The ranges of two files of equal size in which at least one file may hold data. Between
/// these ranges both files have holes, which are equal.
struct Data<'a> {
    files: [&'a OwnedFd; 2],
    size: u64,
    position: u64,
    /// The next data range of each file at or behind `position`; empty at the file's end for
    /// none.
    known: [Range<u64>; 2],
}

impl<'a> Data<'a> {
    fn new(files: [&'a OwnedFd; 2], size: u64) -> Self {
        // A file that fits one read is not searched for holes.
        let known = if size <= BUFFER as u64 { 0..size } else { 0..0 };
        Self { files, size, position: 0, known: [known.clone(), known] }
    }

    /// Returns the next range, of at most [`BUFFER`] bytes.
    fn next(&mut self) -> Result<Option<Range<u64>>, (Side, Errno)> {
        for (index, side) in [Side::First, Side::Second].into_iter().enumerate() {
            if self.known[index].end <= self.position && self.position < self.size {
                let data = next_data(self.files[index].as_fd(), self.position, self.size);
                let data = data.map_err(|errno| (side, errno))?;
                self.known[index] = data.unwrap_or(self.size..self.size);
            }
        }
        let [first, second] = &self.known;
        let start = first.start.min(second.start).max(self.position);
        let ends = self.known.iter().filter(|known| known.start <= start).map(|known| known.end);
        let end = ends.max().unwrap_or(start).min(start + BUFFER as u64);
        self.position = end;
        Ok((start < end).then_some(start..end))
    }
}

/// Returns the fields of statx(2) that must be equal. A directory's size and times depend on
/// its list, whose entries are compared one by one.
fn plain(stat: &Statx) -> impl PartialEq {
    let is_directory = kind_of(stat) == FileType::Directory;
    let mtime = (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
    (
        stat.stx_mode,
        (stat.stx_uid, stat.stx_gid),
        (stat.stx_rdev_major, stat.stx_rdev_minor),
        (!is_directory).then_some((stat.stx_size, mtime)),
    )
}

/// Reads from `position` until the buffer is full or the file ends.
fn fill(file: &OwnedFd, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match pread(file.as_fd(), &mut buffer[filled..], position + filled as u64)? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}
