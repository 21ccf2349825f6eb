//! Finds the data ranges of a file.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Returns the first range of a file of `size` bytes that ends behind `position` and may hold
/// data. Returns `None` if only a hole is left. The range starts at `position` or later. On a
/// file system that does not report holes, everything is data (lseek(2)).
pub(crate) fn next_data(
    file: BorrowedFd<'_>,
    position: u64,
    size: u64,
) -> Result<Option<Range<u64>>, Errno> {
    let start = match seek(file, SeekFrom::Data(position)) {
        Ok(start) => start,
        // Only a hole is left, or the file has become shorter.
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => position,
        Err(errno) => return Err(errno),
    };
    let end = seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
    Ok((start < end).then_some(start..end))
}
