//! Finds and makes the directories of members, without ever leaving the target.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, chmodat, mkdirat, openat2};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use synconce_durable::error::{Context, Error};

use super::{as_path, refuse};

/// The longest path that is given to the kernel in one call; its limit is 4,096 bytes with the
/// NUL.
const AT_ONCE: usize = 4000;

/// The number of directories on the path to the last one that are kept open.
const KEPT: usize = 64;

/// The directories of a tree that is being unpacked. The path to the last directory is cached,
/// because most members lie in the same directory as the member before, or in its parent or
/// child.
pub(super) struct UnpackedDirectories {
    target: Rc<OwnedFd>,
    last: Vec<u8>,
    /// The open directories on the path to the last one, each with the length of its path,
    /// from the top.
    way: VecDeque<(usize, Rc<OwnedFd>)>,
}

/// What is done about missing directories of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfMissing {
    Make,
    Fail,
}

impl UnpackedDirectories {
    pub(super) fn new(target: BorrowedFd<'_>) -> io::Result<Self> {
        let target = Rc::new(fcntl_dupfd_cloexec(target, 3)?);
        Ok(Self { target, last: Vec::new(), way: VecDeque::new() })
    }

    /// Returns the root of the target.
    pub(super) fn target(&self) -> BorrowedFd<'_> {
        self.target.as_fd()
    }

    /// Clears the cached path, because an entry that is part of it was removed.
    pub(super) fn forget(&mut self) {
        self.way.clear();
    }

    /// Returns the directory that `path` lies in, and the name there. Symbolic links are followed
    /// as if the target were the root directory, as they were in the system that the archive was
    /// made of.
    pub(super) fn parent<'p>(
        &mut self,
        path: &'p [u8],
        if_missing: IfMissing,
    ) -> Result<(Rc<OwnedFd>, &'p [u8]), Error> {
        let (dir, name) = split(path);
        let found = match self.find(dir) {
            Err(Errno::NOENT) if if_missing == IfMissing::Make => self.make(dir),
            found => found,
        };
        found.map(|found| (found, name)).on("cannot reach", as_path(path))
    }

    fn find(&mut self, dir: &[u8]) -> Result<Rc<OwnedFd>, Errno> {
        if dir.is_empty() {
            return Ok(Rc::clone(&self.target));
        }
        let is_on_way = |length: usize| {
            dir.strip_prefix(&self.last[..length])
                .is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
        };
        while self.way.back().is_some_and(|(length, _)| !is_on_way(*length)) {
            self.way.pop_back();
        }
        if let Some((length, fd)) = self.way.back() {
            if *length == dir.len() {
                return Ok(Rc::clone(fd));
            }
            // Only without links: a link with `..` could leave this directory, and the kernel
            // would stop at it as if it were the root.
            if let Ok(found) = plain(fd.as_fd(), &dir[length + 1..]) {
                return Ok(self.keep(dir, found));
            }
        }
        if dir.len() > AT_ONCE {
            return self.find_deep(dir);
        }
        let found = self.resolve(dir)?;
        Ok(self.keep(dir, found))
    }

    /// Opens the last directories of a long path one by one: later members lie in them, and
    /// opening each from the target would repeat the lookups.
    fn find_deep(&mut self, dir: &[u8]) -> Result<Rc<OwnedFd>, Errno> {
        let slashes = dir.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        let mut ends: Vec<usize> = slashes.map(|(at, _)| at).take(KEPT - 1).collect();
        let Some(first) = ends.pop() else {
            let found = self.resolve(dir)?;
            return Ok(self.keep(dir, found));
        };
        let found = self.resolve(&dir[..first])?;
        let (mut found, mut start) = (self.keep(&dir[..first], found), first + 1);
        for end in ends.into_iter().rev().chain([dir.len()]) {
            let next = plain(found.as_fd(), &dir[start..end])?;
            found = self.keep(&dir[..end], next);
            start = end + 1;
        }
        Ok(found)
    }

    /// Caches a directory; the cached directories above lead to it.
    fn keep(&mut self, dir: &[u8], found: OwnedFd) -> Rc<OwnedFd> {
        let found = Rc::new(found);
        if self.way.len() == KEPT {
            self.way.pop_front();
        }
        self.way.push_back((dir.len(), Rc::clone(&found)));
        self.last.clear();
        self.last.extend_from_slice(dir);
        found
    }

    fn resolve(&self, dir: &[u8]) -> Result<OwnedFd, Errno> {
        let head = head(dir);
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let found = open(self.target.as_fd(), &dir[..head], resolve)?;
        if head == dir.len() { Ok(found) } else { plain(found.as_fd(), &dir[head + 1..]) }
    }

    /// Makes the missing directories of `dir`, from the top: an archive may have members in
    /// any order.
    fn make(&mut self, dir: &[u8]) -> Result<Rc<OwnedFd>, Errno> {
        self.forget();
        let mut found = Rc::clone(&self.target);
        let mut end = 0;
        for name in dir.split(|byte| *byte == b'/') {
            end += name.len();
            let next = match plain(found.as_fd(), name) {
                Err(Errno::LOOP | Errno::NOTDIR) => self.resolve(&dir[..end]),
                Err(Errno::NOENT) => {
                    let mode = Mode::from_raw_mode(0o755);
                    mkdirat(&*found, name, mode)?;
                    chmodat(&*found, name, mode, AtFlags::empty())?;
                    plain(found.as_fd(), name)
                }
                next => next,
            };
            found = self.keep(&dir[..end], next?);
            end += 1;
        }
        Ok(found)
    }
}

/// Returns how many bytes of `dir` are looked up in one call.
fn head(dir: &[u8]) -> usize {
    if dir.len() <= AT_ONCE {
        return dir.len();
    }
    dir[..AT_ONCE].iter().rposition(|byte| *byte == b'/').unwrap_or(dir.len())
}

/// Opens the directory `path` below `dir`, without following links.
pub(super) fn plain(dir: BorrowedFd<'_>, mut path: &[u8]) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let mut found: Option<OwnedFd> = None;
    loop {
        let head = head(path);
        let next = open(found.as_ref().map_or(dir, AsFd::as_fd), &path[..head], resolve)?;
        if head == path.len() {
            return Ok(next);
        }
        found = Some(next);
        path = &path[head + 1..];
    }
}

fn open(dir: BorrowedFd<'_>, path: &[u8], resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    loop {
        match openat2(dir, path, flags, Mode::empty(), resolve) {
            // A rename or mount happened anywhere while ".." was looked up (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Splits a path into its directory and its name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

/// Returns the path of a member below the root: without leading "/" and "./" and trailing "/".
pub(super) fn below_root(member: &[u8], path: &[u8]) -> Result<Vec<u8>, Error> {
    let mut below = Vec::with_capacity(path.len());
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err(refuse(member, "\"..\" in a name leads out of a directory")),
            _ => {
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(name);
            }
        }
    }
    Ok(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_from_the_root_and_never_above_it() {
        let below = |path: &str| below_root(b"member", path.as_bytes()).ok();
        assert_eq!(below("./a//b/./c/"), Some(b"a/b/c".to_vec()));
        assert_eq!(below("/etc/passwd"), Some(b"etc/passwd".to_vec()));
        assert_eq!(below("./"), Some(Vec::new()));
        assert_eq!(below("a/../b"), None);
        assert_eq!(below(".."), None);
        assert_eq!(below("..a/b.."), Some(b"..a/b..".to_vec()));
    }
}
