//! The files at a held path, and whether they are of the stated kind.

use super::found::{DatabaseFile, is_lmdb, is_sqlite, kind_of};
use super::open::open_regular;
use super::refusal::{Refusal, RefusalReason};
use crate::config::Held;
use crate::config::HeldKind;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// How far the files of a directory are looked at.
pub(super) const DEEPEST: usize = 4;
/// The longest part of a text file that is read.
const LONGEST: u64 = 1 << 20;

/// The files and directories at a held path.
pub(super) struct Contents {
    files: BTreeSet<PathBuf>,
    directories: BTreeSet<PathBuf>,
}

impl Contents {
    /// Lists the files at the path of `held`: the file itself, or those of the directory.
    pub(super) fn read(held: &Held) -> Result<Self, Refusal> {
        if held.kind.is_file() {
            let files = BTreeSet::from([held.path.clone()]);
            return Ok(Self { files, directories: BTreeSet::new() });
        }
        Self::below(&held.path).map_err(|reason| reason.on(&held.path))
    }

    /// Lists the files below the directory `path`.
    pub(super) fn below(path: &Path) -> Result<Self, RefusalReason> {
        let mut contents = Self { files: BTreeSet::new(), directories: BTreeSet::new() };
        let mut waiting = VecDeque::from([(path.to_owned(), 0)]);
        while let Some((directory, depth)) = waiting.pop_front() {
            let listed = contents.list(&directory);
            let below =
                listed.map_err(|error| RefusalReason::Unreadable(directory.clone(), error))?;
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
    let refuse = |reason: RefusalReason| Err(reason.on(path));
    if contents.is_empty() {
        return check_empty(held);
    }
    if let Some(version) = contents.named("PG_VERSION").next()
        && !held.throw_away
    {
        return refuse(RefusalReason::Postgresql(version.to_owned()));
    }
    let is_of_kind = match held.kind {
        HeldKind::Bolt => return check_bolt(path).map_err(|reason| reason.on(path)),
        HeldKind::Sqlite => any(contents, is_sqlite),
        HeldKind::Lmdb => any(contents, is_lmdb),
        HeldKind::Etcd => Ok(["member/snap/db", "member/wal"].iter().all(|name| {
            let path = path.join(name);
            contents.files.contains(&path) || contents.directories.contains(&path)
        })),
        HeldKind::Postgresql => Ok(contents.named("PG_VERSION").next().is_some()),
        HeldKind::Other => Ok(true),
    };
    match is_of_kind {
        Ok(true) => Ok(()),
        Ok(false) => {
            // A file without the rest of the database says nothing new.
            let is_new =
                |found: &DatabaseFile| found.kind != held.kind || found.path(path) != *path;
            refuse(match DatabaseFile::among(contents.files()).filter(is_new) {
                Some(found) => RefusalReason::OtherKind(held.kind, found),
                None => RefusalReason::NoSignature(held.kind),
            })
        }
        Err(reason) => refuse(reason),
    }
}

/// Checks a path at which there is nothing yet.
pub(super) fn check_empty(held: &Held) -> Result<(), Refusal> {
    if held.kind == HeldKind::Postgresql && !held.throw_away {
        Err(RefusalReason::Postgresql(held.path.clone()).on(&held.path))
    } else {
        Ok(())
    }
}

fn check_bolt(path: &Path) -> Result<(), RefusalReason> {
    let unreadable = |error| RefusalReason::Unreadable(path.to_owned(), error);
    match kind_of(path).map_err(unreadable)? {
        Some(HeldKind::Bolt) => Ok(()),
        Some(kind) => Err(RefusalReason::PartOfSet(kind)),
        None if path.metadata().map_err(unreadable)?.len() == 0 => Ok(()),
        None => Err(RefusalReason::NoSignature(HeldKind::Bolt)),
    }
}

/// Whether `is` holds for any of the files.
fn any(contents: &Contents, is: fn(&Path) -> io::Result<bool>) -> Result<bool, RefusalReason> {
    for file in contents.files() {
        match is(file) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(RefusalReason::Unreadable(file.to_owned(), error)),
        }
    }
    Ok(false)
}

/// Returns the text of the file `path`; empty if it cannot be read, as without the file.
pub(super) fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}
