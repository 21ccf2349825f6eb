//! Removes whole trees.

mod refusal;

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, unlinkat};
use rustix::io::Errno;
use synconce_sys::btrfs;

use self::refusal::overcome;
use crate::walk::directory::Mounts;
use crate::walk::node::{DirFds, Node, path_of_root, shown};
use crate::walk::tally::Tally;
use crate::walk::visitor::{At, Entered, Left, Visitor};
use crate::walk::walk_entry;
use crate::{Error, Progress};

/// The result of a removal.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Removed {
    /// The number of files of all kinds and directories.
    pub entries: u64,
    /// What is still there, and why, sorted by path: mounts (`EXDEV`, `EBUSY`) and entries
    /// that the kernel refuses to remove. Their parent directories are also still there.
    pub left: Vec<Error>,
}

impl Removed {
    /// Returns whether everything was removed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left.is_empty()
    }
}

/// How often a directory is read again if other processes add entries to it meanwhile.
const ROUNDS: u32 = 3;

/// Removes `name` in `parent`, with everything below if it is a directory, by `threads` threads.
///
/// No mount is crossed, not even a bind mount of the same file system: a mount stays with its
/// content and its parent directories, and all else is removed. An immutable or append-only
/// flag (as root) or a directory's mode (as its owner) that prevents a removal is changed. If
/// `name` does not exist, that is no error.
///
/// # Errors
/// `name` is not a single name (`EINVAL`); `ECANCELED`; a directory could not be read. Entries
/// that could not be removed are in [`Removed::left`].
pub fn remove(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    threads: usize,
    progress: &dyn Progress,
) -> Result<Removed, Error> {
    let base = path_of_root(parent);
    let fail = |errno: Errno| Error::new("cannot remove", &base.join(name), errno);
    let name = match name.as_bytes() {
        b"" | b"." | b".." => return Err(fail(Errno::INVAL)),
        bytes if bytes.contains(&b'/') => return Err(fail(Errno::INVAL)),
        bytes => CString::new(bytes).map_err(|_| fail(Errno::INVAL))?,
    };
    let first = parent
        .try_clone_to_owned()
        .map_err(|error| Error::new("cannot use the descriptor of", &base, error))?;
    let is_btrfs = btrfs::is_btrfs(first.as_fd()).unwrap_or(false);
    let removal = Removal { base: &base, progress, is_btrfs, removed: Mutex::default() };
    let parent = DirFds { first, second: None };
    walk_entry(&removal, parent, Fate::default(), &name, threads)?;
    let mut removed = removal.removed.into_inner().unwrap_or_else(PoisonError::into_inner);
    removed.left.sort_by_cached_key(ToString::to_string);
    Ok(removed)
}

struct Removal<'a> {
    base: &'a Path,
    progress: &'a dyn Progress,
    /// Whether the file system may have subvolumes.
    is_btrfs: bool,
    removed: Mutex<Removed>,
}

/// What becomes of a directory.
#[derive(Debug, Default)]
struct Fate {
    /// Whether something in it could not be removed.
    stays: AtomicBool,
    rounds: AtomicU32,
}

impl Fate {
    fn stay(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }
}

struct RemoveThread<'a> {
    tally: Tally<'a>,
    left: Vec<Error>,
}

type RemovedDirectory<'a, 'r> = At<'a, Removal<'r>>;

impl Removal<'_> {
    /// Records that `name` in `node` stays because of `errno`.
    fn leave_it(
        &self,
        node: &Node<Fate>,
        own: &mut RemoveThread<'_>,
        name: &CStr,
        act: &'static str,
        errno: Errno,
    ) {
        node.data.stay();
        let act = match errno {
            Errno::XDEV | Errno::BUSY => "cannot remove what is mounted on",
            _ => act,
        };
        own.left.push(self.error(act, &node.path_to(name), errno));
    }

    /// Clears the read-only flag of a btrfs subvolume, in which nothing can be removed
    /// otherwise.
    fn make_writable(&self, directory: &OwnedFd) {
        if self.is_btrfs && btrfs::is_subvolume(directory.as_fd()).unwrap_or(false) {
            // If this fails, the removal fails too and reports an error.
            let _ = btrfs::make_writable(directory.as_fd());
        }
    }

    /// Opens a directory. Returns `None` if it is gone or cannot be removed.
    fn open(
        &self,
        at: &RemovedDirectory<'_, '_>,
        own: &mut RemoveThread<'_>,
        name: &CStr,
    ) -> Option<OwnedFd> {
        let parent = at.pair.first();
        let mut opened = Mounts::Stop.directory(parent, name);
        if let Err(errno @ Errno::ACCESS) = opened
            && overcome(errno, parent, name)
        {
            opened = Mounts::Stop.directory(parent, name);
        }
        match opened {
            Ok(directory) => {
                self.make_writable(&directory);
                Some(directory)
            }
            Err(Errno::NOENT) => None,
            Err(errno) => {
                self.leave_it(at.node, own, name, "cannot open", errno);
                None
            }
        }
    }
}

/// Removes one name. If refused, clears flags or changes modes and retries once.
fn unlink(parent: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> Result<(), Errno> {
    let result = unlinkat(parent, name, flags);
    match result {
        Err(errno @ (Errno::PERM | Errno::ACCESS)) if overcome(errno, parent, name) => {
            unlinkat(parent, name, flags)
        }
        result => result,
    }
}

impl<'a> Visitor for Removal<'a> {
    type Data = Fate;
    type Own = RemoveThread<'a>;

    fn own(&self) -> RemoveThread<'a> {
        RemoveThread { tally: Tally::new(self.progress, "cannot remove"), left: Vec::new() }
    }

    fn enter(
        &self,
        at: &RemovedDirectory<'_, 'a>,
        own: &mut RemoveThread<'a>,
        name: &CStr,
    ) -> Entered<Fate> {
        let directory = self.open(at, own, name);
        Ok(directory.map(|first| (DirFds { first, second: None }, Fate::default())))
    }

    fn entry(
        &self,
        at: &RemovedDirectory<'_, 'a>,
        own: &mut RemoveThread<'a>,
        name: &CStr,
        _: FileType,
    ) -> Result<bool, Error> {
        match unlink(at.pair.first(), name, AtFlags::empty()) {
            Ok(()) => own.tally.entry()?,
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => return Ok(true),
            Err(errno) => self.leave_it(at.node, own, name, "cannot remove", errno),
        }
        Ok(false)
    }

    fn leave(
        &self,
        at: &RemovedDirectory<'_, 'a>,
        own: &mut RemoveThread<'a>,
        above: Option<&DirFds>,
    ) -> Result<Left, Error> {
        // The root of the walk is the parent of the directory to remove.
        let (Some(above), Some(parent)) = (above, at.node.parent()) else { return Ok(Left::Done) };
        if at.node.data.stays.load(Ordering::Relaxed) {
            parent.data.stay();
            return Ok(Left::Done);
        }
        let name = at.node.name();
        match unlink(above.first(), name, AtFlags::REMOVEDIR) {
            Ok(()) => own.tally.entry()?,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST)
                if at.node.data.rounds.fetch_add(1, Ordering::Relaxed) < ROUNDS =>
            {
                return Ok(Left::Again);
            }
            Err(errno) => self.leave_it(parent, own, name, "cannot remove", errno),
        }
        Ok(Left::Done)
    }

    fn error(&self, act: &'static str, path: &[u8], errno: Errno) -> Error {
        Error::new(act, &shown(self.base, path), errno)
    }

    fn finish(&self, mut own: RemoveThread<'a>) {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.entries += own.tally.total().0;
        removed.left.append(&mut own.left);
    }
}
