//! The signatures of databases: which one is at a path, for the message that the stated kind is
//! wrong.

use super::bolt;
use super::open::open_regular;
use crate::config::HeldKind;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SQLITE: &[u8] = b"SQLite format 3\0";
/// LMDB's magic number, after the header of the first page.
const LMDB: u32 = 0xBEEF_C0DE;
const LMDB_AT: u64 = 16;

/// A file of a database.
#[derive(Debug, PartialEq, Eq)]
pub struct DatabaseFile {
    /// What it is of.
    pub kind: HeldKind,
    /// The file.
    pub file: PathBuf,
}

impl DatabaseFile {
    /// Returns the first of `files` whose kind is known. A file that cannot be read is of no
    /// known kind.
    pub(super) fn among<'a>(mut files: impl Iterator<Item = &'a Path>) -> Option<Self> {
        let of = |file: &Path| {
            let kind = kind_of(file).ok().flatten()?;
            Some(Self { kind, file: file.to_owned() })
        };
        files.find_map(of)
    }

    /// Returns the path to hold where `held` was named: the file, or the directory of its set.
    pub fn path(&self, held: &Path) -> PathBuf {
        let above = |count| self.file.ancestors().nth(count).unwrap_or(held).to_owned();
        match self.kind {
            HeldKind::Bolt => self.file.clone(),
            // The file is in member/snap or member/wal.
            HeldKind::Etcd => above(3),
            _ if held == self.file || !self.file.starts_with(held) => above(1),
            _ => held.to_owned(),
        }
    }

    /// Returns what to write in the hold's file in place of `held`.
    pub(super) fn advice(&self, held: &Path) -> String {
        let (path, kind) = (self.path(held), self.kind.word());
        let more = match self.kind {
            HeldKind::Postgresql => ", with throw_away = true,",
            _ => "",
        };
        format!("say path = {path:?} and kind = \"{kind}\"{more} in the hold's file")
    }
}

/// Returns the kind of the file `file`; `None` if the kind is unknown.
pub(super) fn kind_of(file: &Path) -> io::Result<Option<HeldKind>> {
    let is_in = |name| file.parent().is_some_and(|above| above.ends_with(name));
    Ok(if is_sqlite(file)? {
        Some(HeldKind::Sqlite)
    } else if is_lmdb(file)? {
        Some(HeldKind::Lmdb)
    } else if is_in("member/snap") || is_in("member/wal") {
        Some(HeldKind::Etcd)
    } else if bolt::is_bolt(file)? {
        Some(HeldKind::Bolt)
    } else if file.with_file_name("PG_VERSION").is_file() {
        Some(HeldKind::Postgresql)
    } else {
        None
    })
}

/// Whether the file `path` begins as a database of SQLite.
pub(super) fn is_sqlite(path: &Path) -> io::Result<bool> {
    starts_at(path, 0, SQLITE)
}

/// Whether the file `path` begins as a database of LMDB.
pub(super) fn is_lmdb(path: &Path) -> io::Result<bool> {
    starts_at(path, LMDB_AT, &LMDB.to_ne_bytes())
}

/// Whether the file `path` has the bytes `wanted` at `at`.
fn starts_at(path: &Path, at: u64, wanted: &[u8]) -> io::Result<bool> {
    let mut bytes = vec![0; wanted.len()];
    match open_regular(path)?.read_exact_at(&mut bytes, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| bytes == wanted),
    }
}
