//! A directory on the way of a walk.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use super::Error;
use super::directory::{Identity, Mounts, above};

/// The open directory of a walk, and its counterpart in the other tree if there are two.
#[derive(Debug)]
pub(super) struct DirFds {
    pub first: OwnedFd,
    pub second: Option<OwnedFd>,
}

impl DirFds {
    pub fn first(&self) -> BorrowedFd<'_> {
        self.first.as_fd()
    }

    /// The counterpart; where there is none, the directory itself.
    pub fn second(&self) -> BorrowedFd<'_> {
        self.second.as_ref().unwrap_or(&self.first).as_fd()
    }
}

/// A directory that is not finished yet. It does not keep the directory open.
#[derive(Debug)]
pub(super) struct Node<D> {
    parent: Option<Arc<Self>>,
    name: CString,
    /// Who still works on it or in it.
    references: AtomicUsize,
    /// Which directories they are, from the time at which they were closed.
    identity: OnceLock<(Identity, Option<Identity>)>,
    pub data: D,
}

impl<D> Node<D> {
    /// The directory `name` in `parent`, with one hold on it.
    pub fn new(parent: Option<Arc<Self>>, name: CString, data: D) -> Arc<Self> {
        let (references, identity) = (AtomicUsize::new(1), OnceLock::new());
        Arc::new(Self { parent, name, references, identity, data })
    }

    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    pub fn name(&self) -> &CStr {
        &self.name
    }

    pub fn acquire(&self) {
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether nobody else references it, for the moment.
    pub fn has_one_reference(&self) -> bool {
        self.references.load(Ordering::Acquire) == 1
    }

    /// Drops a reference. Whether that was the last one.
    pub fn release(&self) -> bool {
        self.references.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Writes down which directories these are, so that they are known again.
    pub fn remember(&self, pair: &DirFds) {
        if self.identity.get().is_none() {
            let second = pair.second.as_ref().map(Identity::of).transpose();
            if let (Ok(first), Ok(second)) = (Identity::of(&pair.first), second) {
                let _ = self.identity.set((first, second));
            }
        }
    }

    /// Opens this directory by the ".." of one in it.
    pub fn open_from_below(&self, below: &DirFds) -> Option<DirFds> {
        let &(first, second) = self.identity.get()?;
        let first = above(&below.first, first)?;
        let second = match (second, &below.second) {
            (None, _) => None,
            (Some(identity), Some(below)) => Some(above(below, identity)?),
            (Some(_), None) => return None,
        };
        Some(DirFds { first, second })
    }

    /// Opens this directory, which is not the root, by the names from there on, with `open`.
    pub fn open_from_root<T>(
        &self,
        root: &T,
        open: impl Fn(&T, &Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut nodes = vec![self];
        while let Some(parent) = nodes.last().and_then(|node| node.parent()) {
            nodes.push(parent);
        }
        // The last is the root itself.
        nodes.pop();
        let mut opened = open(root, nodes.pop().unwrap_or(self))?;
        while let Some(node) = nodes.pop() {
            opened = open(&opened, node)?;
        }
        Ok(opened)
    }

    /// Opens the counterpart of this directory.
    pub fn open_target(&self, root: &DirFds) -> Result<OwnedFd, Errno> {
        let root = root.second().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        self.open_from_root(&root, |parent, node| {
            Mounts::Stop.directory(parent.as_fd(), node.name())
        })
    }

    /// The path below the root, without a slash before it: empty for the root.
    pub fn path(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut node = self;
        while let Some(parent) = node.parent() {
            names.push(node.name().to_bytes());
            node = parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The path below the root of `name` in this directory.
    pub fn path_to(&self, name: &CStr) -> Vec<u8> {
        let mut path = self.path();
        if !name.is_empty() {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.to_bytes());
        }
        path
    }
}

impl<D> Drop for Node<D> {
    /// Lets go of the directories above one by one: of a tree of any depth, the stack of a
    /// thread is not deep enough to do it one within the other.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.parent.take();
        }
    }
}

/// Opens an open directory anew: where its list is read goes with the descriptor, and the
/// caller's is not to be moved.
pub(super) fn anew(directory: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    Mounts::Stop
        .directory(directory, c".")
        .map_err(|errno| Error::new("cannot open", &path_of_root(directory), errno))
}

/// The path of an open directory, to name it in an error.
pub(super) fn path_of_root(root: BorrowedFd<'_>) -> PathBuf {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", root.as_raw_fd());
    std::fs::read_link(link).unwrap_or_else(|_| PathBuf::from("."))
}

/// A path below a root as one to be shown.
pub(super) fn shown(root: &Path, below: &[u8]) -> PathBuf {
    if below.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(below)) }
}
