//! Whole trees of files: copied, removed, compared, fingerprinted, summed, packed and unpacked.
//!
//! Trees are walked by several threads, by directory descriptors and names, never by paths. A
//! walk uses one thread per core. Each thread goes depth first, and hands a directory over
//! only when another thread is idle, so that the queue stays small however large the tree is.
//! Directories are read in pieces. No mount is crossed unless requested, not even a bind mount
//! of the same file system.
//!
//! Paths are made only for messages, in an [`Error`], and for reports, where they begin below
//! the root of the tree.
#![forbid(unsafe_code)]

pub mod archive;
mod checksums;
mod compare;
mod copy;
mod extents;
mod fingerprint;
mod flags;
mod owners;
mod progress;
mod remove;
mod walk;
mod xattrs;

pub use synconce_durable::error::Error;

pub use self::checksums::{Checksums, ReadFrom, checksums, from_list, to_list};
pub use self::compare::{ChangeKind, TreeDifference, compare};
pub use self::copy::{CopyMode, CopyOptions, CopyReport, Inode, OverlayAttributes, copy};
pub use self::fingerprint::{Fingerprint, Fingerprinted, compare_fingerprints, fingerprint};
pub use self::flags::unflag;
pub use self::progress::{Progress, wait_until_ready};
pub use self::remove::{Removed, remove};
pub use self::xattrs::{shows_overlay_attributes, xattrs};

/// Returns the default number of threads: the cores that this process may use, at least 2,
/// because one thread runs while the other waits for the disk, and at most 8.
#[must_use]
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8))
}

/// Makes `buffer` at least `length` bytes long. The old content is lost: the callers overwrite the
/// buffer. The allocator gives new zeroed memory faster than the old buffer could be extended.
fn grow(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        *buffer = vec![0; length];
    }
}
