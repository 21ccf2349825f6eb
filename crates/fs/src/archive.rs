//! Reads and writes tar archives.
//!
//! [`unpack()`] reads archives by GNU tar, bsdtar, mmdebstrap and `docker export`: ustar, GNU
//! and PAX headers, sparse files of all four kinds, extended attributes, access control lists.
//! No member can lead out of the target. A truncated archive is an error, even if it was cut
//! between two members: the archive must end with a block of zeros (one block at the very end
//! suffices; POSIX requires two).
//!
//! [`pack()`] writes PAX: the same tree gives the same bytes. Names begin with `./`, as
//! mmdebstrap's do, so that the tree's root has a member of its own for its mode and owner.
//! GNU tar and `docker import` both accept such names.
//!
//! The `tar` crate provides the layout of headers. Its reader and its builder (0.4.46) are not
//! used. The reader ends PAX values at a newline, which binary values may contain, accepts an
//! archive that was cut between two members, ignores global PAX headers, PAX sparse files and
//! negative times, and keeps only the low 64 bits of longer numbers. The builder writes such
//! numbers as GNU does, takes `./` off names, and rewrites the targets of links.

mod acl;
mod attributes;
mod descend;
mod header;
mod image;
mod member;
mod pack;
mod pax;
mod places;
mod reader;
mod source;
mod sparse;
mod unpack;
mod write;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use synconce_durable::error::Error;

use crate::progress::Progress;

pub use pack::{Packed, pack};
pub use source::{ArchiveSource, open};
pub use unpack::{Unpacked, unpack, unpack_from};

/// The block size of a tar in bytes.
const BLOCK: u64 = 512;

/// What could not be packed or unpacked, or would be misread by an overlay, for a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The total number.
    pub count: u64,
    /// The first 1,000 of them: the path below the root, and what is wrong there and why.
    pub named: Vec<(PathBuf, String)>,
}

impl LeftOut {
    /// The most entries in `named`, which bounds the report's length and memory.
    const NAMED: usize = 1000;

    fn note(&mut self, path: &[u8], what: impl Into<String>) {
        self.count += 1;
        if self.named.len() < Self::NAMED {
            self.named.push((as_path(path).to_owned(), what.into()));
        }
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    match bytes {
        b"" => Path::new("."),
        _ => Path::new(OsStr::from_bytes(bytes)),
    }
}

/// Makes an error about the content of an archive.
fn refuse(member: &[u8], why: impl Into<String>) -> Error {
    Error::new("cannot unpack", as_path(member), io::Error::other(why.into()))
}

/// Makes the error of an act on `member`.
fn failed(act: &'static str, member: &[u8], error: impl Into<io::Error>) -> Error {
    Error::new(act, as_path(member), error)
}

/// Fails once the work is cancelled.
fn go_on(act: &'static str, member: &[u8], progress: &dyn Progress) -> Result<(), Error> {
    if progress.cancelled() {
        return Err(failed(act, member, rustix::io::Errno::CANCELED));
    }
    Ok(())
}
