//! Copies the content of files: shared, or copied with its holes.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Statx, copy_file_range, ftruncate, ioctl_ficlone};
use rustix::io::{Errno, pread, pwrite, read, write};

use super::CopyMode;
use crate::extents::next_data;
use crate::walk::tally::Tally;
use crate::{Error, grow};

/// Files up to this size are copied with one read and one write.
pub(super) const BUFFER: usize = 256 << 10;

/// The number of bytes that are copied between two checks for cancellation.
const PIECE: u64 = 8 << 20;

/// Why content was not copied.
pub(super) enum NotCopied {
    Reading(Errno),
    Writing(Errno),
    Sharing(Errno),
    Cancelled(Error),
}

impl From<Error> for NotCopied {
    fn from(error: Error) -> Self {
        Self::Cancelled(error)
    }
}

/// How content is copied.
pub(super) struct ContentCopier {
    mode: CopyMode,
    /// Whether the two file systems are known not to share data; sharing is then not tried
    /// again.
    unshared: AtomicBool,
}

impl ContentCopier {
    pub fn new(mode: CopyMode) -> Self {
        Self { mode, unshared: AtomicBool::new(mode == CopyMode::Copy) }
    }

    /// Copies all of `source` into the empty `target`. Returns whether they now share the
    /// data.
    pub fn copy(
        &self,
        source: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        stat: &Statx,
        buffer: &mut Vec<u8>,
        tally: &mut Tally<'_>,
    ) -> Result<bool, NotCopied> {
        let size = stat.stx_size;
        if size == 0 {
            return Ok(false);
        }
        if !self.unshared.load(Ordering::Relaxed) && self.share(source, target)? {
            tally.bytes(size)?;
            return Ok(true);
        }
        let has_holes = stat.stx_blocks.saturating_mul(512) < size;
        if size < BUFFER as u64 && !has_holes {
            small(source, target, buffer, tally)?;
        } else {
            extents(source, target, size, buffer, tally)?;
        }
        Ok(false)
    }

    fn share(&self, source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<bool, NotCopied> {
        match ioctl_ficlone(target, source) {
            Ok(()) => Ok(true),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => {
                Err(NotCopied::Sharing(errno))
            }
            Err(errno) if self.mode == CopyMode::Reflink => Err(NotCopied::Sharing(errno)),
            Err(errno) => {
                // Other errors are about this file only: a file without checksums on btrfs,
                // for example.
                if matches!(errno, Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) {
                    self.unshared.store(true, Ordering::Relaxed);
                }
                Ok(false)
            }
        }
    }
}

/// Copies to the file's end, even if its size has changed.
fn small(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    tally: &mut Tally<'_>,
) -> Result<(), NotCopied> {
    grow(buffer, BUFFER);
    loop {
        let length = read(source, &mut buffer[..]).map_err(NotCopied::Reading)?;
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let written = write(target, rest).map_err(NotCopied::Writing)?;
            rest = &rest[written..];
        }
        tally.bytes(length as u64)?;
        // A short read of a regular file is its end.
        if length < buffer.len() {
            return Ok(());
        }
    }
}

/// Copies data ranges and keeps holes.
fn extents(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    size: u64,
    buffer: &mut Vec<u8>,
    tally: &mut Tally<'_>,
) -> Result<(), NotCopied> {
    let (mut position, mut in_kernel) = (0, true);
    while position < size {
        let data = next_data(source, position, size).map_err(NotCopied::Reading)?;
        let Some(data) = data else { break };
        position = data.start;
        while position < data.end {
            let length = (data.end - position).min(PIECE);
            let copied = piece(source, target, position, length, buffer, &mut in_kernel)?;
            if copied == 0 {
                // The file has become shorter; the caller notices the change.
                return Ok(());
            }
            position += copied;
            tally.bytes(copied)?;
        }
    }
    if position < size {
        ftruncate(target, size).map_err(NotCopied::Writing)?;
    }
    Ok(())
}

/// Copies up to `length` bytes at `position`. Returns 0 at the end of the file.
fn piece(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    position: u64,
    length: u64,
    buffer: &mut Vec<u8>,
    in_kernel: &mut bool,
) -> Result<u64, NotCopied> {
    if *in_kernel {
        let (mut from, mut to) = (position, position);
        let length = usize::try_from(length).unwrap_or(BUFFER);
        match copy_file_range(source, Some(&mut from), target, Some(&mut to), length) {
            // Some file systems return 0 before the end; the read below decides.
            Ok(copied) if copied > 0 => return Ok(copied as u64),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                return Err(NotCopied::Writing(errno));
            }
            Ok(_) | Err(_) => *in_kernel = false,
        }
    }
    grow(buffer, BUFFER);
    let wanted = usize::try_from(length).unwrap_or(BUFFER).min(BUFFER);
    let length = pread(source, &mut buffer[..wanted], position).map_err(NotCopied::Reading)?;
    let mut done = 0;
    while done < length {
        let at = position + done as u64;
        done += pwrite(target, &buffer[done..length], at).map_err(NotCopied::Writing)?;
    }
    Ok(length as u64)
}
