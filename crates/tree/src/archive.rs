//! Tar in and tar out.
//!
//! [`unpack`] takes what GNU tar, bsdtar, mmdebstrap and `docker export` write: ustar, GNU
//! and PAX headers, sparse files of all four kinds, extended attributes, access control
//! lists. Nothing in an archive can lead out of the target, and an archive is whole or an
//! error: its end is told by a block of zeros, so that one cut between two members is
//! noticed too (one such block at the very end will do; POSIX wants two).
//!
//! [`pack`] writes PAX: the same tree gives the same bytes. Names begin with `./`, as
//! mmdebstrap's do, so that the tree's root has a member of its own for its mode and owner,
//! which GNU tar and `docker import` both take.
//!
//! The `tar` crate gives the layout of headers. Its reader is not used: it ends PAX values
//! at a newline, which binary ones may contain, knows no PAX sparse files, and takes
//! a cut archive for complete.

mod acl;
mod attributes;
mod descend;
mod header;
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

pub use pack::{PackOptions, Packed, pack};
pub use source::{Source, open};
pub use unpack::{UnpackOptions, Unpacked, unpack, unpack_from};

/// The unit of a tar in bytes.
const BLOCK: u64 = 512;

/// What could not be taken along, for a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// How many there were.
    pub count: u64,
    /// The first of them: the path below the root, and what of it is missing, and why.
    pub named: Vec<(PathBuf, String)>,
}

impl LeftOut {
    /// More than these would be a list that nobody reads, in memory that nobody bounds.
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

/// An error about what is in an archive, not of the kernel's.
fn refuse(member: &[u8], why: impl Into<String>) -> Error {
    Error::new("cannot unpack", as_path(member), io::Error::other(why.into()))
}

/// The error of an act on `member`.
fn failed(act: &'static str, member: &[u8], error: impl Into<io::Error>) -> Error {
    Error::new(act, as_path(member), error)
}

/// Fails once nobody wants the result.
fn go_on(act: &'static str, member: &[u8], progress: &dyn Progress) -> Result<(), Error> {
    if progress.cancelled() {
        return Err(failed(act, member, rustix::io::Errno::CANCELED));
    }
    Ok(())
}
