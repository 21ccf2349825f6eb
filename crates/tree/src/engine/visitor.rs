//! What is done on a walk.

use super::Error;
use super::node::{DirFds, Node};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::Arc;

/// What is done on a walk. Every method is called by many threads at once.
pub(super) trait Visitor: Sync {
    /// What is kept of a directory until it is finished.
    type Data: Send + Sync;
    /// What belongs to one thread.
    type Own;

    /// For a new thread.
    fn own(&self) -> Self::Own;

    /// Opens the directory `name` before what is in it is visited; none to pass it by.
    fn enter(&self, at: &At<'_, Self>, own: &mut Self::Own, name: &CStr) -> Entered<Self::Data>;

    /// Visits what the directory's list says to be no directory. Returns whether it is one
    /// after all, and has to be entered.
    fn entry(
        &self,
        at: &At<'_, Self>,
        own: &mut Self::Own,
        name: &CStr,
        kind: FileType,
    ) -> Result<bool, Error>;

    /// The directory's list was read to its end.
    /// Directories that are not in the list are visited if `_more` is told of them.
    fn listed(
        &self,
        _at: &At<'_, Self>,
        _own: &mut Self::Own,
        _more: &mut dyn FnMut(&CStr),
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Everything in the directory is finished. `above` is the directory that it is in.
    fn leave(
        &self,
        at: &At<'_, Self>,
        own: &mut Self::Own,
        above: Option<&DirFds>,
    ) -> Result<Left, Error>;

    /// Opens a directory that was entered before again, in the one that it is in.
    fn reopen(&self, parent: &DirFds, node: &Node<Self::Data>) -> Result<DirFds, Errno>;

    /// The error of an act on a directory that is visited.
    fn error(&self, act: &'static str, path: &[u8], errno: Errno) -> Error;

    /// The thread has nothing more to do.
    fn finish(&self, own: Self::Own);
}

/// An entered directory.
pub(super) type Entered<D> = Result<Option<(DirFds, D)>, Error>;

/// Whether a directory is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Done,
    /// It is to be read again from its beginning.
    Again,
}

/// The directory where something is visited.
pub(super) struct At<'a, V: Visitor + ?Sized> {
    pub node: &'a Arc<Node<V::Data>>,
    pub pair: &'a Arc<DirFds>,
}

impl<V: Visitor + ?Sized> Clone for At<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Visitor + ?Sized> Copy for At<'_, V> {}
