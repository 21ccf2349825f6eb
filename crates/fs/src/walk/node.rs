//! The directories that a walk is in.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use super::Error;
use super::directory::{Identity, Mounts, above};

/// An open directory, and its counterpart in the second tree if there are two.
#[derive(Debug)]
pub(crate) struct DirFds {
    pub first: OwnedFd,
    pub second: Option<OwnedFd>,
}

impl DirFds {
    pub fn first(&self) -> BorrowedFd<'_> {
        self.first.as_fd()
    }

    /// Returns the counterpart, or the directory itself if there is none.
    pub fn second(&self) -> BorrowedFd<'_> {
        self.second.as_ref().unwrap_or(&self.first).as_fd()
    }
}

/// A directory that is not finished yet. The node does not keep the directory open.
#[derive(Debug)]
pub(crate) struct Node<D> {
    parent: Option<Arc<Self>>,
    name: CString,
    /// The number of frames, tasks and child nodes that still use the directory.
    references: AtomicUsize,
    /// The identities of the directory and its counterpart, set before they are closed.
    identity: OnceLock<(Identity, Option<Identity>)>,
    pub data: D,
}

impl<D> Node<D> {
    /// Makes the node of `name` in `parent`, with one reference.
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

    pub(crate) fn acquire(&self) {
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether there is only one reference at the moment.
    pub(crate) fn has_one_reference(&self) -> bool {
        self.references.load(Ordering::Acquire) == 1
    }

    /// Drops a reference. Returns whether it was the last one.
    pub fn release(&self) -> bool {
        self.references.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Stores the identities of the directories, to check them when they are opened again.
    pub fn remember(&self, pair: &DirFds) {
        if self.identity.get().is_none() {
            let second = pair.second.as_ref().map(Identity::read).transpose();
            if let (Ok(first), Ok(second)) = (Identity::read(&pair.first), second) {
                let _ = self.identity.set((first, second));
            }
        }
    }

    /// Opens this directory by the ".." of a child.
    pub(crate) fn open_from_below(&self, below: &DirFds) -> Option<DirFds> {
        let &(first, second) = self.identity.get()?;
        let first = above(&below.first, first)?;
        let second = match (second, &below.second) {
            (None, _) => None,
            (Some(identity), Some(below)) => Some(above(below, identity)?),
            (Some(_), None) => return None,
        };
        Some(DirFds { first, second })
    }

    /// Opens this directory, which is not the root, step by step from the root with `open`.
    pub(crate) fn open_from_root<T>(
        &self,
        root: &T,
        open: impl Fn(&T, &Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut nodes = vec![self];
        while let Some(parent) = nodes.last().and_then(|node| node.parent()) {
            nodes.push(parent);
        }
        // The last node is the root itself.
        nodes.pop();
        let mut opened = open(root, nodes.pop().unwrap_or(self))?;
        while let Some(node) = nodes.pop() {
            opened = open(&opened, node)?;
        }
        Ok(opened)
    }

    pub(crate) fn open_target(&self, root: &DirFds) -> Result<OwnedFd, Errno> {
        let root = root.second().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        self.open_from_root(&root, |parent, node| {
            Mounts::Stop.directory(parent.as_fd(), node.name())
        })
    }

    /// Returns the path below the root, without a leading slash: empty for the root.
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

    /// Returns the path of `name` in this directory, below the root.
    pub(crate) fn path_to(&self, name: &CStr) -> Vec<u8> {
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
    /// Drops the ancestors in a loop: with recursion, a deep tree would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.parent.take();
        }
    }
}

/// Opens a directory again. The new descriptor has a read position of its own, so that the
/// caller's does not move.
pub(crate) fn anew(directory: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    Mounts::Stop
        .directory(directory, c".")
        .map_err(|errno| Error::new("cannot open", &path_of_root(directory), errno))
}

/// Returns the path of an open directory, for errors.
pub(crate) fn path_of_root(root: BorrowedFd<'_>) -> PathBuf {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", root.as_raw_fd());
    std::fs::read_link(link).unwrap_or_else(|_| PathBuf::from("."))
}

/// Returns the full path of `below`, for messages.
pub(crate) fn shown(root: &Path, below: &[u8]) -> PathBuf {
    if below.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(below)) }
}
