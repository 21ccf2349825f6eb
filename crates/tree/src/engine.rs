//! Walks over whole trees by more than one thread: by descriptors of directories and
//! names in them, never by paths.
//!
//! A walk takes as many threads as there are cores. Each goes depth first, and gives a
//! directory away only when another thread has nothing to do, so that what is waiting
//! stays small however large the tree is. Directories are read in pieces. No mount is
//! crossed unless that was asked for, not even a bind mount of the same file system.
//!
//! Paths are made only when there is something to say about one: in an [`Error`], or in
//! a report, where they begin below the root of the tree.

mod compare;
mod copy;
mod directory;
mod extents;
mod fingerprint;
mod names;
mod node;
mod pool;
mod progress;
mod remove;
mod visitor;
mod walk;
mod worker;
mod xattrs;

pub use synconce_durable::error::Error;

pub use self::compare::{Change, ChangeKind, compare};
pub use self::copy::{CopyMode, CopyOptions, CopyReport, copy};
pub(crate) use self::extents::next_data;
pub use self::fingerprint::{
    Fingerprint, FingerprintOptions, Fingerprinted, compare_fingerprints, fingerprint,
};
pub use self::progress::Progress;
pub use self::remove::{RemoveOptions, Removed, remove};

/// How many threads a walk takes unless said: the cores that this process may use, at
/// least 2, because one waits while the disk works for the other, at most 8.
#[must_use]
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8))
}
