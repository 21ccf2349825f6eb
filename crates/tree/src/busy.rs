//! Why a tree cannot be used now, and what would free it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What keeps a tree from being used: the cause of an error, found by [`Busy::in_error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The store of the tree.
    pub store: PathBuf,
    /// The tree.
    pub tree: String,
    /// What uses it.
    pub by: User,
}

/// What uses a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// A command, which ends with this process.
    Process(u32),
    /// A mount at this path, which was not ended by `tree umount`. A `tree mount` or `tree
    /// umount` that was killed leaves this, too.
    Mount(PathBuf),
    /// A mount that cannot be unmounted: it is at this path, below another mount or moved.
    Covered(PathBuf),
    /// Processes that work in the mount at this path.
    Workers(PathBuf),
    /// A mount in another mount namespace, which has this session's directories.
    Elsewhere(PathBuf),
}

impl Busy {
    /// What kept the tree from being used, if that is the cause of `error`.
    pub fn in_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    pub(crate) fn error(store: &Path, tree: &str, by: User) -> io::Error {
        io::Error::other(Self { store: store.to_owned(), tree: tree.to_owned(), by })
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = &self.tree;
        match &self.by {
            User::Process(pid) => write!(f, "it is in use by process {pid}"),
            User::Mount(at) => write!(f, "it is mounted at {}", at.display()),
            User::Covered(at) => {
                write!(
                    f,
                    "{tree} is still mounted at {}, below another mount or moved",
                    at.display()
                )
            }
            User::Workers(_) => write!(f, "processes work in it"),
            User::Elsewhere(_) => write!(f, "it is still mounted in another mount namespace"),
        }
    }
}

impl std::error::Error for Busy {}
