//! Goes through a tree in the order of names, as deep as it may be.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags, openat2};
use rustix::io::Errno;

use super::places::plain;

/// So many descriptors are kept; directories above are opened again when they are come back to.
const KEPT: usize = 64;

/// The way from a root to where we are.
pub(super) struct Descent<'a> {
    root: BorrowedFd<'a>,
    /// The path below the root of the entry that is next.
    path: Vec<u8>,
    levels: Vec<Level>,
    buffer: Vec<u8>,
}

/// A directory and a name in it.
pub(super) type Entry = (Rc<OwnedFd>, Box<[u8]>);

struct Level {
    dir: Option<Rc<OwnedFd>>,
    /// The length of its own path.
    path: usize,
    /// What is still to be visited in it, the next one last.
    names: Vec<Box<[u8]>>,
}

impl<'a> Descent<'a> {
    pub(super) fn new(root: BorrowedFd<'a>) -> Self {
        Self { root, path: Vec::new(), levels: Vec::new(), buffer: Vec::with_capacity(64 << 10) }
    }

    /// The path of the entry that [`Descent::next`] gave.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// The next entry: its directory and its name there; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Errno> {
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

    /// Opens the last directories on the way, one by one: those above are come back to as well,
    /// and each would have to be looked up from the root again.
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

    /// Goes into the directory that was the last entry, or the root.
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
        self.levels.push(Level { dir: Some(Rc::new(dir)), path: self.path.len(), names });
        Ok(())
    }
}

fn uninit(buffer: &mut Vec<u8>) -> &mut [MaybeUninit<u8>] {
    buffer.clear();
    buffer.spare_capacity_mut()
}

/// Opens a directory to read it, unless something is mounted on it (`EXDEV`).
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
