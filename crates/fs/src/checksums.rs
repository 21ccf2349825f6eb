//! Takes checksums of the contents of a tree's files.

mod list;

pub use self::list::{from_list, to_list};
use crate::walk::directory::{Mounts, kind_of, look, look_at};
use crate::walk::node::{DirFds, anew, path_of_root, shown};
use crate::walk::tally::Tally;
use crate::walk::visitor::{At, Entered, Left, Visitor};
use crate::walk::walk;
use crate::{Error, Progress, grow, threads};
use rustix::fs::{Advice, FileType, OFlags, fadvise, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// The SHA-256 of the content of each regular file by its path below the tree, or why the content
/// cannot be read.
pub type Checksums = BTreeMap<Vec<u8>, Result<[u8; 32], Errno>>;

/// Bytes of one read. An `O_DIRECT` read has no readahead.
const BUFFER: usize = 1 << 20;

/// The alignment of memory for an `O_DIRECT` read: the largest sector of a disk (open(2)).
const SECTOR: usize = 4096;

/// Where a content is read. Memory may show data that the disk has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// From memory, as programs see it, or from the disk if it is not there.
    Memory,
    /// From the disk, where the file system has `O_DIRECT`.
    Disk,
}

/// Takes the checksums of the tree in the directory `tree`. Mounts are not crossed.
///
/// # Errors
/// A directory cannot be read; `ECANCELED`.
pub fn checksums(
    tree: BorrowedFd<'_>,
    from: ReadFrom,
    progress: &dyn Progress,
) -> Result<Checksums, Error> {
    let root = DirFds { first: anew(tree)?, second: None };
    let reading = Summing { tree, from, progress, sums: Mutex::default() };
    walk(&reading, root, (), threads())?;
    Ok(reading.sums.into_inner().unwrap_or_else(PoisonError::into_inner))
}

struct Summing<'a> {
    tree: BorrowedFd<'a>,
    from: ReadFrom,
    progress: &'a dyn Progress,
    sums: Mutex<Checksums>,
}

/// The state of a thread.
struct Own<'a> {
    tally: Tally<'a>,
    sums: Checksums,
    buffer: Vec<u8>,
}

/// Why a content has no checksum.
enum NoChecksum {
    Reading(Errno),
    Cancelled(Error),
}

/// Returns the checksum of the regular file `file`.
fn sum(file: &OwnedFd, from: ReadFrom, own: &mut Own<'_>) -> Result<[u8; 32], NoChecksum> {
    let flags = fcntl_getfl(file).map_err(NoChecksum::Reading)?;
    let mut is_direct = false;
    if from == ReadFrom::Disk {
        // A file system without O_DIRECT reads from memory what it could not drop.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        is_direct = fcntl_setfl(file, flags | OFlags::DIRECT).is_ok();
    }
    grow(&mut own.buffer, BUFFER + SECTOR);
    let start = own.buffer.as_ptr().align_offset(SECTOR);
    let buffer = &mut own.buffer[start..start + BUFFER];
    let mut sum = Sha256::new();
    loop {
        let length = match read(file, &mut *buffer) {
            Ok(0) => return Ok(sum.finalize().into()),
            Err(Errno::INTR) => continue,
            // Sectors above 4 KiB, or an end within a sector before Linux 5.11.
            Err(Errno::INVAL) if is_direct => {
                fcntl_setfl(file, flags).map_err(NoChecksum::Reading)?;
                is_direct = false;
                continue;
            }
            length => length.map_err(NoChecksum::Reading)?,
        };
        sum.update(&buffer[..length]);
        own.tally.bytes(length as u64).map_err(NoChecksum::Cancelled)?;
    }
}

type Directory<'a, 's> = At<'a, Summing<'s>>;

impl<'a> Visitor for Summing<'a> {
    type Data = ();
    type Own = Own<'a>;

    fn own(&self) -> Own<'a> {
        let tally = Tally::new(self.progress, "cannot take the checksums of");
        Own { tally, sums: Checksums::new(), buffer: Vec::new() }
    }

    fn enter(&self, at: &Directory<'_, 'a>, _: &mut Own<'a>, name: &CStr) -> Entered<()> {
        match Mounts::Stop.directory(at.pair.first(), name) {
            Ok(first) => Ok(Some((DirFds { first, second: None }, ()))),
            Err(Errno::XDEV | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(self.error("cannot open", &at.node.path_to(name), errno)),
        }
    }

    fn entry(
        &self,
        at: &Directory<'_, 'a>,
        own: &mut Own<'a>,
        name: &CStr,
        kind: FileType,
    ) -> Result<bool, Error> {
        let kind = match kind {
            FileType::Unknown => look(at.pair.first(), name).map_or(kind, |stat| kind_of(&stat)),
            kind => kind,
        };
        own.tally.entry()?;
        if kind != FileType::RegularFile {
            return Ok(kind == FileType::Directory);
        }
        let file = match Mounts::Stop.file(at.pair.first(), name) {
            // A file on which another is mounted.
            Err(Errno::XDEV | Errno::NOENT) => return Ok(false),
            Ok(file) if look_at(&file).is_ok_and(|it| kind_of(&it) == FileType::RegularFile) => {
                sum(&file, self.from, own)
            }
            Ok(_) => return Ok(false),
            Err(errno) => Err(NoChecksum::Reading(errno)),
        };
        let sum = match file {
            Ok(sum) => Ok(sum),
            Err(NoChecksum::Reading(errno)) => Err(errno),
            Err(NoChecksum::Cancelled(error)) => return Err(error),
        };
        own.sums.insert(at.node.path_to(name), sum);
        Ok(false)
    }

    fn leave(
        &self,
        _: &Directory<'_, 'a>,
        own: &mut Own<'a>,
        _: Option<&DirFds>,
    ) -> Result<Left, Error> {
        own.tally.entry().map(|()| Left::Done)
    }

    fn error(&self, act: &'static str, path: &[u8], errno: Errno) -> Error {
        Error::new(act, &shown(&path_of_root(self.tree), path), errno)
    }

    fn finish(&self, mut own: Own<'a>) {
        own.tally.total();
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).append(&mut own.sums);
    }
}
