//! What is in files: shared, or copied with its holes.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Statx, copy_file_range, ftruncate, ioctl_ficlone};
use rustix::io::{Errno, pread, pwrite, read, write};

use super::super::Error;
use super::super::extents::next_data;
use super::super::progress::Tally;
use super::CopyMode;

/// Files up to this size are read by one call and written by another.
pub(super) const BUFFER: usize = 256 << 10;

/// How much is copied between two looks at whether the copy is cancelled.
const PIECE: u64 = 8 << 20;

/// Why content was not copied.
pub(super) enum Failed {
    Reading(Errno),
    Writing(Errno),
    Sharing(Errno),
    Cancelled(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Cancelled(error)
    }
}

/// How content is to be copied, and what was learnt about it.
pub(super) struct Content {
    mode: CopyMode,
    /// The two file systems cannot share data: it need not be tried again.
    unshared: AtomicBool,
}

impl Content {
    pub fn new(mode: CopyMode) -> Self {
        Self { mode, unshared: AtomicBool::new(mode == CopyMode::Copy) }
    }

    /// Copies all of `source` into the empty `target`. Returns whether they share it now.
    pub fn copy(
        &self,
        source: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        stat: &Statx,
        buffer: &mut Vec<u8>,
        tally: &mut Tally<'_>,
    ) -> Result<bool, Failed> {
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

    fn share(&self, source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<bool, Failed> {
        match ioctl_ficlone(target, source) {
            Ok(()) => Ok(true),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => Err(Failed::Sharing(errno)),
            Err(errno) if self.mode == CopyMode::Reflink => Err(Failed::Sharing(errno)),
            Err(errno) => {
                // Others are about this file alone: one without checksums on btrfs, say.
                if matches!(errno, Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) {
                    self.unshared.store(true, Ordering::Relaxed);
                }
                Ok(false)
            }
        }
    }
}

/// Until the end, wherever that is by now.
fn small(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    tally: &mut Tally<'_>,
) -> Result<(), Failed> {
    buffer.resize(BUFFER, 0);
    loop {
        let length = read(source, &mut buffer[..]).map_err(Failed::Reading)?;
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let written = write(target, rest).map_err(Failed::Writing)?;
            rest = &rest[written..];
        }
        tally.bytes(length as u64)?;
        // Less than was asked for is the end of a regular file.
        if length < buffer.len() {
            return Ok(());
        }
    }
}

/// What is data as data, what is a hole as a hole.
fn extents(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    size: u64,
    buffer: &mut Vec<u8>,
    tally: &mut Tally<'_>,
) -> Result<(), Failed> {
    let (mut position, mut in_kernel) = (0, true);
    while position < size {
        let data = next_data(source, position, size).map_err(Failed::Reading)?;
        let Some(data) = data else { break };
        position = data.start;
        while position < data.end {
            let length = (data.end - position).min(PIECE);
            let copied = piece(source, target, position, length, buffer, &mut in_kernel)?;
            if copied == 0 {
                // It has become shorter: the caller sees that.
                return Ok(());
            }
            position += copied;
            tally.bytes(copied)?;
        }
    }
    if position < size {
        ftruncate(target, size).map_err(Failed::Writing)?;
    }
    Ok(())
}

/// Copies some of `length` bytes at `position`; none at the end of the file.
fn piece(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    position: u64,
    length: u64,
    buffer: &mut Vec<u8>,
    in_kernel: &mut bool,
) -> Result<u64, Failed> {
    if *in_kernel {
        let (mut from, mut to) = (position, position);
        let length = usize::try_from(length).unwrap_or(BUFFER);
        match copy_file_range(source, Some(&mut from), target, Some(&mut to), length) {
            // Some file systems answer 0 before the end; reading tells.
            Ok(copied) if copied > 0 => return Ok(copied as u64),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                return Err(Failed::Writing(errno));
            }
            Ok(_) | Err(_) => *in_kernel = false,
        }
    }
    buffer.resize(BUFFER, 0);
    let wanted = usize::try_from(length).unwrap_or(BUFFER).min(BUFFER);
    let length = pread(source, &mut buffer[..wanted], position).map_err(Failed::Reading)?;
    let mut done = 0;
    while done < length {
        let at = position + done as u64;
        done += pwrite(target, &buffer[done..length], at).map_err(Failed::Writing)?;
    }
    Ok(length as u64)
}
