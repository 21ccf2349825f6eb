//! The files at a held path, and the signatures of databases.

use super::refusal::{Reason, Refusal};
use crate::bolt;
use crate::config::Held;
use crate::config::Kind;
use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How far the files of a directory are looked at.
const DEEPEST: usize = 4;
const MOST: usize = 20_000;
/// The longest part of a text file that is read.
const LONGEST: u64 = 1 << 20;

const SQLITE: &[u8] = b"SQLite format 3\0";
/// LMDB's magic number, after the header of the first page.
const LMDB: u32 = 0xBEEF_C0DE;
const LMDB_AT: u64 = 16;

/// The files and directories at a held path.
pub(super) struct Contents {
    files: BTreeSet<PathBuf>,
    directories: BTreeSet<PathBuf>,
}

impl Contents {
    /// Lists the files at the path of `held`: the file itself, or those of the directory.
    pub(super) fn read(held: &Held) -> Result<Self, Refusal> {
        let mut contents = Self { files: BTreeSet::new(), directories: BTreeSet::new() };
        if held.kind.is_file() {
            contents.files.insert(held.path.clone());
            return Ok(contents);
        }
        let mut waiting = VecDeque::from([(held.path.clone(), 0)]);
        while let Some((directory, depth)) = waiting.pop_front() {
            let listed = contents.list(&directory);
            let unreadable = |error| Reason::Unreadable(directory.clone(), error).on(&held.path);
            let below = listed.map_err(unreadable)?;
            if depth < DEEPEST {
                waiting.extend(below.into_iter().map(|path| (path, depth + 1)));
            }
        }
        Ok(contents)
    }

    /// Adds the entries of `directory`; returns its directories.
    fn list(&mut self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(directory) {
            // Removed after its name was read.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut directories = Vec::new();
        for entry in entries {
            if self.files.len() + self.directories.len() >= MOST {
                break;
            }
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                directories.push(entry.path());
                self.directories.insert(entry.path());
            } else if kind.is_file() {
                self.files.insert(entry.path());
            }
        }
        Ok(directories)
    }

    /// Returns the files.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Returns the files with the name `name`.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = &Path> {
        self.files().filter(move |path| path.file_name().is_some_and(|found| found == name))
    }

    /// Whether there is a file or directory `name` in the directory of `file`.
    pub(super) fn has_beside(&self, file: &Path, name: &str) -> bool {
        let path = file.with_file_name(name);
        self.files.contains(&path) || self.directories.contains(&path)
    }

    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.directories.is_empty()
    }
}

/// Checks that the contents are of the kind of `held`, if there are any.
pub(super) fn check(held: &Held, contents: &Contents) -> Result<(), Refusal> {
    let path = &held.path;
    let refuse = |reason: Reason| Err(reason.on(path));
    if contents.is_empty() {
        return Ok(());
    }
    if let Some(version) = contents.named("PG_VERSION").next()
        && !held.throw_away
    {
        return refuse(Reason::Postgresql(version.to_owned()));
    }
    let is_of_kind = match held.kind {
        Kind::Bolt => return check_bolt(path).map_err(|reason| reason.on(path)),
        Kind::Sqlite => any(contents, is_sqlite),
        Kind::Lmdb => any(contents, is_lmdb),
        Kind::Etcd => Ok(["member/snap/db", "member/wal"].iter().all(|name| {
            let path = path.join(name);
            contents.files.contains(&path) || contents.directories.contains(&path)
        })),
        Kind::Postgresql if !held.throw_away => {
            return refuse(Reason::Postgresql(path.clone()));
        }
        Kind::Postgresql => Ok(contents.named("PG_VERSION").next().is_some()),
        Kind::Other => Ok(true),
    };
    match is_of_kind {
        Ok(true) => Ok(()),
        Ok(false) => refuse(Reason::NoSignature(held.kind)),
        Err(reason) => refuse(reason),
    }
}

fn check_bolt(path: &Path) -> Result<(), Reason> {
    if path.ends_with("member/snap/db") {
        return Err(Reason::PartOfSet(Kind::Etcd));
    }
    let unreadable = |error| Reason::Unreadable(path.to_owned(), error);
    let is_empty = path.metadata().map_err(unreadable)?.len() == 0;
    if is_empty || bolt::is_bolt(path).map_err(unreadable)? {
        return Ok(());
    }
    if is_sqlite(path).map_err(unreadable)? {
        return Err(Reason::OtherKind(Kind::Sqlite));
    }
    match is_lmdb(path).map_err(unreadable)? {
        true => Err(Reason::OtherKind(Kind::Lmdb)),
        false => Err(Reason::NoSignature(Kind::Bolt)),
    }
}

/// Whether `is` holds for any of the files.
fn any(contents: &Contents, is: fn(&Path) -> io::Result<bool>) -> Result<bool, Reason> {
    for file in contents.files() {
        match is(file) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Reason::Unreadable(file.to_owned(), error)),
        }
    }
    Ok(false)
}

fn is_sqlite(path: &Path) -> io::Result<bool> {
    starts_at(path, 0, SQLITE)
}

fn is_lmdb(path: &Path) -> io::Result<bool> {
    starts_at(path, LMDB_AT, &LMDB.to_ne_bytes())
}

/// Whether the file `path` has the bytes `wanted` at `at`.
fn starts_at(path: &Path, at: u64, wanted: &[u8]) -> io::Result<bool> {
    let mut bytes = vec![0; wanted.len()];
    match open(path)?.read_exact_at(&mut bytes, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| bytes == wanted),
    }
}

fn open(path: &Path) -> io::Result<File> {
    // The entry may have been replaced, and an open of a FIFO waits for a writer.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).custom_flags(flags).open(path)
}

/// Returns the text of the file `path`; empty if it cannot be read, as without the file.
pub(super) fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}
