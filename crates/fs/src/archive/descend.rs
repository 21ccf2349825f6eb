//! Walks a tree of any depth in the order of names, with a limited number of open directories.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags, openat2};
use rustix::io::Errno;

use super::places::plain;

/// The most directories that are kept open, the innermost ones. Those above are opened again on the
/// way back.
const KEPT: usize = 64;

/// The directories from the root to the current entry.
pub(super) struct Descent<'a> {
    root: BorrowedFd<'a>,
    /// The path of the current entry, below the root.
    path: Vec<u8>,
    levels: Vec<DescentLevel>,
    buffer: Vec<u8>,
}

/// A directory and a name in it.
pub(super) type NameInDirectory = (Rc<OwnedFd>, Box<[u8]>);

struct DescentLevel {
    dir: Option<Rc<OwnedFd>>,
    /// The length in bytes of the directory's path.
    path: usize,
    /// The names still to visit, the next one last.
    names: Vec<Box<[u8]>>,
}

impl<'a> Descent<'a> {
    pub(super) fn new(root: BorrowedFd<'a>) -> Self {
        Self { root, path: Vec::new(), levels: Vec::new(), buffer: Vec::with_capacity(64 << 10) }
    }

    /// Returns the path of the entry that [`Descent::next`] returned.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the next entry, as its directory and its name there; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<NameInDirectory>, Errno> {
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            self.path.truncate(level.path);
            let Some(name) = level.names.pop() else {
                self.levels.pop();
                continue;
            };
            let dir = match &level.dir {
                Some(dir) => Rc::clone(dir),
                None => self.open_again()?,
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name);
            return Ok(Some((dir, name)));
        }
    }

    /// Opens the last [`KEPT`] directories of the path again, and returns the last. Opens them one
    /// by one, because the walk returns to each, and a lookup of each from the root costs more.
    fn open_again(&mut self) -> Result<Rc<OwnedFd>, Errno> {
        let first = self.levels.len().saturating_sub(KEPT);
        let start = match &self.path[..self.levels[first].path] {
            b"" => b".",
            path => path,
        };
        let mut dir = Rc::new(plain(self.root, start)?);
        self.levels[first].dir = Some(Rc::clone(&dir));
        for above in first..self.levels.len() - 1 {
            let name = &self.path[self.levels[above].path..self.levels[above + 1].path];
            dir = Rc::new(plain(dir.as_fd(), name.strip_prefix(b"/").unwrap_or(name))?);
            self.levels[above + 1].dir = Some(Rc::clone(&dir));
        }
        Ok(dir)
    }

    /// Reads the names in `dir`, which are the next entries. `dir` must be the entry that
    /// [`Descent::next`] returned last, or the root.
    pub(super) fn enter(&mut self, dir: OwnedFd) -> Result<(), Errno> {
        let mut names = Vec::new();
        let mut entries = RawDir::new(dir.as_fd(), uninit(&mut self.buffer));
        while let Some(entry) = entries.next() {
            let name = entry?.file_name().to_bytes().to_owned();
            if !matches!(&name[..], b"." | b"..") {
                names.push(name.into_boxed_slice());
            }
        }
        names.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(above) = self.levels.len().checked_sub(KEPT) {
            self.levels[above].dir = None;
        }
        self.levels.push(DescentLevel { dir: Some(Rc::new(dir)), path: self.path.len(), names });
        Ok(())
    }
}

fn uninit(buffer: &mut Vec<u8>) -> &mut [MaybeUninit<u8>] {
    buffer.clear();
    buffer.spare_capacity_mut()
}

/// Opens a directory for reading. Fails with `EXDEV` at a mount point.
pub(super) fn open(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    loop {
        match openat2(dir, name, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}
