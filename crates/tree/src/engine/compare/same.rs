//! Whether an entry is the same in both trees.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Statx, readlinkat};
use rustix::io::{Errno, read};

use super::super::Error;
use super::super::directory::{Mounts, path_of};
use super::super::xattrs::{Named, each};
use super::{Comparison, Own, Side, kind};

/// How much of a file is compared at a time.
const BUFFER: usize = 256 << 10;

/// An entry of both trees; "." for the directories themselves.
pub(super) struct Sides<'a> {
    pub first: BorrowedFd<'a>,
    pub second: BorrowedFd<'a>,
    pub name: &'a CStr,
}

type Attributes = BTreeMap<CString, Vec<u8>>;

impl Comparison<'_> {
    /// Whether all that is compared is the same.
    pub(super) fn agree(
        &self,
        sides: &Sides<'_>,
        (a, b): &(Statx, Statx),
        own: &mut Own<'_>,
        path: &dyn Fn() -> Vec<u8>,
    ) -> Result<bool, Error> {
        if plain(a) != plain(b) {
            return Ok(false);
        }
        let attributes = |side, directory| {
            let attributes = attributes(directory, sides.name);
            attributes.map_err(|errno| {
                self.fail(side, "cannot read the extended attributes of", &path(), errno)
            })
        };
        if attributes(Side::First, sides.first)? != attributes(Side::Second, sides.second)? {
            return Ok(false);
        }
        match kind(a) {
            FileType::Symlink => {
                let target = |side, directory| {
                    readlinkat(directory, sides.name, Vec::new())
                        .map_err(|errno| self.fail(side, "cannot read the link", &path(), errno))
                };
                Ok(target(Side::First, sides.first)? == target(Side::Second, sides.second)?)
            }
            FileType::RegularFile => self.content(sides, own, path),
            _ => Ok(true),
        }
    }

    fn content(
        &self,
        sides: &Sides<'_>,
        own: &mut Own<'_>,
        path: &dyn Fn() -> Vec<u8>,
    ) -> Result<bool, Error> {
        let open = |side, directory| {
            Mounts::Stop
                .file(directory, sides.name)
                .map_err(|errno| self.fail(side, "cannot open", &path(), errno))
        };
        let (first, second) = (open(Side::First, sides.first)?, open(Side::Second, sides.second)?);
        own.buffers.0.resize(BUFFER, 0);
        own.buffers.1.resize(BUFFER, 0);
        loop {
            let fail = |side| move |errno| (side, errno);
            let one = fill(&first, &mut own.buffers.0).map_err(fail(Side::First));
            let other = fill(&second, &mut own.buffers.1).map_err(fail(Side::Second));
            let (one, other) = match (one, other) {
                (Ok(one), Ok(other)) => (one, other),
                (Err((side, errno)), _) | (_, Err((side, errno))) => {
                    return Err(self.fail(side, "cannot read", &path(), errno));
                }
            };
            if own.buffers.0[..one] != own.buffers.1[..other] {
                return Ok(false);
            }
            own.tally.bytes(one as u64)?;
            if one < BUFFER {
                return Ok(true);
            }
        }
    }
}

/// What statx(2) says that has to be the same. A directory's size and times are those of
/// its list, which is compared by itself.
fn plain(stat: &Statx) -> impl PartialEq {
    let is_directory = kind(stat) == FileType::Directory;
    let mtime = (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
    (
        stat.stx_mode,
        (stat.stx_uid, stat.stx_gid),
        (stat.stx_rdev_major, stat.stx_rdev_minor),
        (!is_directory).then_some((stat.stx_size, mtime)),
    )
}

fn attributes(directory: BorrowedFd<'_>, name: &CStr) -> Result<Attributes, Errno> {
    let mut all = Attributes::new();
    each(
        &Named(path_of(directory, name)),
        |errno| errno,
        |name, value| {
            all.insert(name.to_owned(), value.to_vec());
            Ok(())
        },
    )?;
    Ok(all)
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(file.as_fd(), &mut buffer[filled..])? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}
