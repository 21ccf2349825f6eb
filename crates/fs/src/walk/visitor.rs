//! The operations of a walk.

use super::Error;
use super::directory::Mounts;
use super::node::{DirFds, Node};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::Arc;

/// The operations of a walk. Every method is called by several threads at once.
pub(crate) trait Visitor: Sync {
    /// State of a directory until it is finished.
    type Data: Send + Sync;
    /// State of one thread.
    type Own;

    /// Makes the state of a new thread.
    fn own(&self) -> Self::Own;

    /// Opens the directory `name` before its entries are visited; `None` skips it.
    fn enter(&self, at: &At<'_, Self>, own: &mut Self::Own, name: &CStr) -> Entered<Self::Data>;

    /// Visits an entry that the directory's list does not mark as a directory. Returns whether
    /// the entry is a directory after all and must be entered.
    fn entry(
        &self,
        at: &At<'_, Self>,
        own: &mut Self::Own,
        name: &CStr,
        kind: FileType,
    ) -> Result<bool, Error>;

    /// Called when the directory's list was read to its end. Directories that are passed to
    /// `_more` are visited in addition.
    fn listed(
        &self,
        _at: &At<'_, Self>,
        _own: &mut Self::Own,
        _more: &mut dyn FnMut(&CStr),
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Called when everything in the directory is finished. `above` is the parent directory.
    fn leave(
        &self,
        at: &At<'_, Self>,
        own: &mut Self::Own,
        above: Option<&DirFds>,
    ) -> Result<Left, Error>;

    /// Opens a directory again that was entered before, from its parent. By default it is one
    /// directory on the file system of its parent.
    fn reopen(&self, parent: &DirFds, node: &Node<Self::Data>) -> Result<DirFds, Errno> {
        Ok(DirFds { first: Mounts::Stop.directory(parent.first(), node.name())?, second: None })
    }

    /// Makes the error of an act on a visited directory.
    fn error(&self, act: &'static str, path: &[u8], errno: Errno) -> Error;

    /// Called when the thread has no more work.
    fn finish(&self, own: Self::Own);
}

/// An entered directory.
pub(crate) type Entered<D> = Result<Option<(DirFds, D)>, Error>;

/// Whether a directory is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Done,
    /// The directory must be read again from its beginning.
    Again,
}

/// The directory in which something is visited.
pub(crate) struct At<'a, V: Visitor + ?Sized> {
    pub node: &'a Arc<Node<V::Data>>,
    pub pair: &'a Arc<DirFds>,
}

impl<V: Visitor + ?Sized> Clone for At<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Visitor + ?Sized> Copy for At<'_, V> {}
