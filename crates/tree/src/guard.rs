//! Why a tree is kept from a slip, and what allows the act.

use crate::record::{TreeName, TreeRecord};
use crate::store::{Opened, Store};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;

/// What keeps a tree from an act: the cause of an error, found by [`Guarded::in_error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// The store of the tree.
    pub store: PathBuf,
    /// The tree.
    pub tree: String,
    /// What guards the tree.
    pub by: Guard,
}

/// What guards a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Changes that are not committed. The act would lose them, or it is not clear whether the
    /// act includes them.
    Changes,
    /// Protection: no run or mount may leave changes in the tree.
    Protection,
    /// The record of the tree cannot be read: which changes and layers the tree has is unknown.
    Unreadable,
    /// The name is that of a generation, which does not change.
    Generation,
    /// A sync of the file system has failed since the uncommitted changes were begun: it may not
    /// have them.
    Loss,
    /// The file system of the store was unmounted since the uncommitted changes were begun. The
    /// kernel reports no write that it lost then.
    Unmount,
}

impl Guarded {
    /// Returns what guards the tree, if that is the cause of `error`.
    pub fn in_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.by {
            Guard::Changes => "it has changes that are not committed",
            Guard::Protection => "it is a protected base",
            Guard::Unreadable => "its record cannot be read",
            Guard::Generation => "it is a generation, and generations do not change",
            Guard::Loss => "a sync of the disk failed after its changes began",
            Guard::Unmount => {
                "the disk was unmounted after its changes began, and may have lost writes"
            }
        })
    }
}

impl std::error::Error for Guarded {}

/// Fails when the tree of `record` has uncommitted changes.
pub(crate) fn is_committed(
    store: &Store,
    act: &'static str,
    record: &TreeRecord,
) -> Result<(), Error> {
    match store.opened(record)? {
        Opened::Yes(_) => Err(error(store, act, &record.name, Guard::Changes)),
        Opened::No | Opened::Lost | Opened::Missing(_) | Opened::Stale => Ok(()),
    }
}

/// Fails when the disk may have lost writes after the uncommitted changes of `record`'s tree began.
pub(crate) fn has_lost_nothing(store: &Store, record: &TreeRecord) -> Result<(), Error> {
    let Some(open) = store.open_note(record)? else { return Ok(()) };
    let refused = |by| Err(error(store, "cannot commit", &record.name, by));
    let (then, now) = (open.boot_epoch, store.boot_epoch()?);
    if then.losses.is_some_and(|then| now.losses > Some(then)) {
        refused(Guard::Loss)
    } else if then.is_same_mount(&now) == Some(false) {
        refused(Guard::Unmount)
    } else {
        Ok(())
    }
}

/// Fails when the tree of `record` is protected.
pub(crate) fn is_unprotected(
    store: &Store,
    act: &'static str,
    record: &TreeRecord,
) -> Result<(), Error> {
    if record.protected { Err(error(store, act, &record.name, Guard::Protection)) } else { Ok(()) }
}

/// Returns the error of a removal of the tree `name`, whose record cannot be read.
pub(crate) fn unreadable(store: &Store, name: &TreeName) -> Error {
    error(store, "cannot remove", name, Guard::Unreadable)
}

/// Returns the error of an act that changes a tree; `name` is a generation.
pub(crate) fn generation(store: &Store, name: &TreeName) -> Error {
    error(store, "cannot use", name, Guard::Generation)
}

fn error(store: &Store, act: &'static str, tree: &TreeName, by: Guard) -> Error {
    let (path, name) = (store.path().to_owned(), tree.to_string());
    refuse(act, tree, io::Error::other(Guarded { store: path, tree: name, by }))
}

/// Makes an error about a tree in place of a path.
pub(crate) fn refuse(act: &'static str, name: &TreeName, why: impl Into<io::Error>) -> Error {
    Error::new(act, Path::new(name.as_str()), why)
}
