//! Compares two trees.

mod same;

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FileType, SeekFrom, Statx, seek};
use rustix::io::Errno;

use self::same::Sides;
use crate::Progress;
use crate::walk::directory::{Mounts, kind_of, look, look_at};
use crate::walk::names::{Names, PIECE, PieceEnd, read};
use crate::walk::node::{DirFds, Node, anew, path_of_root, shown};
use crate::walk::tally::Tally;
use crate::walk::visitor::{At, Entered, Left, Visitor};
use crate::walk::walk;
use crate::{Error, threads};

/// A difference between two trees.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeDifference {
    /// The path below the root; the root's own path is empty.
    pub path: Vec<u8>,
    /// The kind of difference.
    pub kind: ChangeKind,
}

/// The kind of a [`TreeDifference`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// Only the second tree has it.
    Added,
    /// Both have it, but not the same.
    Changed,
    /// Only the first tree has it.
    Removed,
}

/// Compares two trees, and returns the changes from the first to `b`, sorted by path.
///
/// The comparison covers kind, mode, owner, size, device number, target of a symbolic link,
/// extended attributes, and the modification times of everything but directories. If all of
/// them are equal and the two are not the same inode, the contents are compared. Every entry
/// below a directory that only one tree has is in the result.
///
/// # Errors
/// Something cannot be read; something is mounted below a root (`EXDEV`); `ECANCELED`.
pub fn compare(
    a: BorrowedFd<'_>,
    b: BorrowedFd<'_>,
    progress: &dyn Progress,
) -> Result<Vec<TreeDifference>, Error> {
    let root = DirFds { first: anew(a)?, second: Some(anew(b)?) };
    let comparison = Comparison { roots: (a, b), progress, changes: Mutex::default() };
    let at = |directory, fd| {
        look_at(fd).map_err(|errno| Error::new("cannot look at", &path_of_root(directory), errno))
    };
    let stats = (at(a, &root.first)?, at(b, root.second.as_ref().unwrap_or(&root.first))?);
    let mut changes = Vec::new();
    if !is_one(&stats.0, &stats.1) {
        let mut own = comparison.own();
        let sides = Sides { first: root.first(), second: root.second(), name: c"." };
        let same = comparison.agree(&sides, &stats, &mut own, &Vec::new)?;
        if !same {
            changes.push(TreeDifference { path: Vec::new(), kind: ChangeKind::Changed });
        }
        walk(&comparison, root, Side::Both, threads())?;
    }
    changes.append(&mut comparison.changes.into_inner().unwrap_or_else(PoisonError::into_inner));
    changes.sort_unstable();
    Ok(changes)
}

/// The tree or trees that have a directory. If only one has it, its descriptor is the first of
/// a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Both,
    First,
    Second,
}

impl Side {
    /// Returns the kind of change of entries that only this side has.
    fn alone(self) -> ChangeKind {
        if self == Self::Second { ChangeKind::Added } else { ChangeKind::Removed }
    }
}

struct Comparison<'a> {
    roots: (BorrowedFd<'a>, BorrowedFd<'a>),
    progress: &'a dyn Progress,
    changes: Mutex<Vec<TreeDifference>>,
}

struct CompareThread<'a> {
    tally: Tally<'a>,
    changes: Vec<TreeDifference>,
    /// Buffers for the content of each side.
    buffers: (Vec<u8>, Vec<u8>),
}

type ComparedDirectory<'a, 'c> = At<'a, Comparison<'c>>;

/// The most names of a directory that are kept in memory.
const KEPT: usize = 1 << 16;

impl<'a> Comparison<'a> {
    fn tell(
        at: &ComparedDirectory<'_, '_>,
        own: &mut CompareThread<'_>,
        name: &CStr,
        kind: ChangeKind,
    ) {
        own.changes.push(TreeDifference { path: at.node.path_to(name), kind });
    }

    /// Makes the error of an act that failed on one side.
    fn fail(&self, side: Side, act: &'static str, path: &[u8], errno: Errno) -> Error {
        let root = if side == Side::Second { self.roots.1 } else { self.roots.0 };
        Error::new(act, &shown(&path_of_root(root), path), errno)
    }

    fn look(
        &self,
        at: &ComparedDirectory<'_, '_>,
        side: Side,
        directory: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<Option<Statx>, Error> {
        match look(directory, name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.fail(side, "cannot look at", &at.node.path_to(name), errno)),
        }
    }

    fn open(
        &self,
        at: &ComparedDirectory<'_, '_>,
        side: Side,
        directory: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<OwnedFd, Error> {
        Mounts::Stop
            .directory(directory, name)
            .map_err(|errno| self.fail(side, "cannot open", &at.node.path_to(name), errno))
    }

    /// Enters a directory that only one side has.
    fn enter_one(
        &self,
        at: &ComparedDirectory<'_, '_>,
        side: Side,
        directory: BorrowedFd<'_>,
        name: &CStr,
    ) -> Entered<Side> {
        let first = self.open(at, side, directory, name)?;
        Ok(Some((DirFds { first, second: None }, side)))
    }

    /// Reports the entries of a directory that only the second side has. Directories among
    /// them are passed to `more`.
    fn added(
        &self,
        at: &ComparedDirectory<'_, '_>,
        own: &mut CompareThread<'_>,
        more: &mut dyn FnMut(&CStr),
    ) -> Result<(), Error> {
        let known = self.names(at)?;
        let fail =
            |errno| self.fail(Side::Second, "cannot read the directory", &at.node.path(), errno);
        let Some(second) = &at.pair.second else { return Ok(()) };
        seek(second, SeekFrom::Start(0)).map_err(fail)?;
        let mut buffer = Vec::with_capacity(PIECE);
        let mut whole = false;
        while !whole {
            let mut names = Names::default();
            let mut others = Names::default();
            let ended = read(second, &mut buffer, &mut names, &mut others).map_err(fail)?;
            whole = matches!(ended, PieceEnd::Whole);
            for (name, kind) in names.iter().chain(others.iter()) {
                let is_new = match &known {
                    Some(known) => !known.contains(name),
                    None => self.look(at, Side::First, at.pair.first(), name)?.is_none(),
                };
                let is_directory = self.is_directory(at, name, kind)?;
                if is_new && is_directory {
                    more(name);
                } else if is_new {
                    Self::tell(at, own, name, ChangeKind::Added);
                }
            }
        }
        Ok(())
    }

    fn is_directory(
        &self,
        at: &ComparedDirectory<'_, '_>,
        name: &CStr,
        kind: FileType,
    ) -> Result<bool, Error> {
        if kind != FileType::Unknown {
            return Ok(kind == FileType::Directory);
        }
        let stat = self.look(at, Side::Second, at.pair.second(), name)?;
        Ok(stat.is_some_and(|stat| kind_of(&stat) == FileType::Directory))
    }

    /// Returns all names of the first side, or `None` if there are too many.
    fn names(&self, at: &ComparedDirectory<'_, '_>) -> Result<Option<HashSet<CString>>, Error> {
        let fail =
            |errno| self.fail(Side::First, "cannot read the directory", &at.node.path(), errno);
        seek(&at.pair.first, SeekFrom::Start(0)).map_err(fail)?;
        let mut buffer = Vec::with_capacity(PIECE);
        let mut known = HashSet::new();
        loop {
            let (mut names, mut others) = (Names::default(), Names::default());
            let ended = read(&at.pair.first, &mut buffer, &mut names, &mut others).map_err(fail)?;
            known.extend(names.iter().chain(others.iter()).map(|(name, _)| name.to_owned()));
            if matches!(ended, PieceEnd::Whole) {
                return Ok(Some(known));
            }
            if known.len() > KEPT {
                return Ok(None);
            }
        }
    }

    /// Compares an entry that is not a directory on both sides. Returns whether the second
    /// side has a directory there.
    fn both(
        &self,
        at: &ComparedDirectory<'_, '_>,
        own: &mut CompareThread<'_>,
        name: &CStr,
    ) -> Result<bool, Error> {
        let (first, second) = (at.pair.first(), at.pair.second());
        let Some(a) = self.look(at, Side::First, first, name)? else { return Ok(false) };
        if kind_of(&a) == FileType::Directory {
            return Ok(true);
        }
        let Some(b) = self.look(at, Side::Second, second, name)? else {
            Self::tell(at, own, name, ChangeKind::Removed);
            return Ok(false);
        };
        let sides = Sides { first, second, name };
        let path = || at.node.path_to(name);
        if !is_one(&a, &b) && !self.agree(&sides, &(a, b), own, &path)? {
            Self::tell(at, own, name, ChangeKind::Changed);
        }
        // Entries of a directory that replaces something else are new.
        Ok(kind_of(&b) == FileType::Directory)
    }
}

impl<'a> Visitor for Comparison<'a> {
    type Data = Side;
    type Own = CompareThread<'a>;

    fn own(&self) -> CompareThread<'a> {
        let tally = Tally::new(self.progress, "cannot compare");
        CompareThread { tally, changes: Vec::new(), buffers: (Vec::new(), Vec::new()) }
    }

    fn enter(
        &self,
        at: &ComparedDirectory<'_, 'a>,
        own: &mut CompareThread<'a>,
        name: &CStr,
    ) -> Entered<Side> {
        let (first, side) = (at.pair.first(), at.node.data);
        if side != Side::Both {
            Self::tell(at, own, name, side.alone());
            return self.enter_one(at, side, first, name);
        }
        let second = at.pair.second();
        let a = self.look(at, Side::First, first, name)?;
        let b = self.look(at, Side::Second, second, name)?;
        let is_directory = |stat: &Option<Statx>| {
            stat.as_ref().is_some_and(|it| kind_of(it) == FileType::Directory)
        };
        match (is_directory(&a), is_directory(&b)) {
            (true, true) => {}
            (true, false) => {
                let kind = if b.is_some() { ChangeKind::Changed } else { ChangeKind::Removed };
                Self::tell(at, own, name, kind);
                return self.enter_one(at, Side::First, first, name);
            }
            (false, true) => {
                // If the first side has something else there, `both` has reported the change.
                if a.is_none() {
                    Self::tell(at, own, name, ChangeKind::Added);
                }
                return self.enter_one(at, Side::Second, second, name);
            }
            (false, false) => return Ok(None),
        }
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        if is_one(&a, &b) {
            return Ok(None);
        }
        let (first, second) =
            (self.open(at, Side::First, first, name)?, self.open(at, Side::Second, second, name)?);
        let pair = DirFds { first, second: Some(second) };
        let sides = Sides { first: pair.first(), second: pair.second(), name: c"." };
        if !self.agree(&sides, &(a, b), own, &|| at.node.path_to(name))? {
            Self::tell(at, own, name, ChangeKind::Changed);
        }
        Ok(Some((pair, Side::Both)))
    }

    fn entry(
        &self,
        at: &ComparedDirectory<'_, 'a>,
        own: &mut CompareThread<'a>,
        name: &CStr,
        kind: FileType,
    ) -> Result<bool, Error> {
        own.tally.entry()?;
        let side = at.node.data;
        if side == Side::Both {
            return self.both(at, own, name);
        }
        if kind == FileType::Unknown {
            let stat = self.look(at, side, at.pair.first(), name)?;
            if stat.is_some_and(|stat| kind_of(&stat) == FileType::Directory) {
                return Ok(true);
            }
        }
        Self::tell(at, own, name, side.alone());
        Ok(false)
    }

    fn listed(
        &self,
        at: &ComparedDirectory<'_, 'a>,
        own: &mut CompareThread<'a>,
        more: &mut dyn FnMut(&CStr),
    ) -> Result<(), Error> {
        if at.node.data == Side::Both { self.added(at, own, more) } else { Ok(()) }
    }

    fn leave(
        &self,
        _: &ComparedDirectory<'_, 'a>,
        own: &mut CompareThread<'a>,
        _: Option<&DirFds>,
    ) -> Result<Left, Error> {
        own.tally.entry()?;
        Ok(Left::Done)
    }

    fn reopen(&self, parent: &DirFds, node: &Node<Side>) -> Result<DirFds, Errno> {
        let alone = |directory| {
            let first = Mounts::Stop.directory(directory, node.name())?;
            Ok(DirFds { first, second: None })
        };
        match node.data {
            Side::First => alone(parent.first()),
            Side::Second => alone(parent.second()),
            Side::Both => {
                let second = Mounts::Stop.directory(parent.second(), node.name())?;
                Ok(DirFds { second: Some(second), ..alone(parent.first())? })
            }
        }
    }

    fn error(&self, act: &'static str, path: &[u8], errno: Errno) -> Error {
        self.fail(Side::First, act, path, errno)
    }

    fn finish(&self, mut own: CompareThread<'a>) {
        own.tally.total();
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.append(&mut own.changes);
    }
}

/// Returns whether both are the same inode, so that they cannot differ.
fn is_one(one: &Statx, other: &Statx) -> bool {
    let inode = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    inode(one) == inode(other)
}
