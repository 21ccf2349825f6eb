//! Why a tree cannot be used now, and what frees it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use synconce_sys::procfs::process_name;

/// What keeps a tree from being used: the cause of an error, found by [`Busy::in_error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The store of the tree.
    pub store: PathBuf,
    /// The tree.
    pub tree: String,
    /// What uses the tree.
    pub by: TreeUser,
}

/// What uses a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeUser {
    /// A command; the tree is free when the process with this pid ends.
    Process(u32),
    /// A mount at this path that was not unmounted by `tree umount`. A `tree mount` or `tree
    /// umount` that was killed also leaves such a mount.
    Mount(PathBuf),
    /// A mount at this path that is gone, without an end of `tree umount`: that command was
    /// killed, or another program has unmounted it.
    Unmounted(PathBuf),
    /// A mount that cannot be unmounted because another mount covers it or because it was
    /// moved.
    Covered(PathBuf),
    /// Processes with open files or a working directory in the mount at this path.
    Workers(PathBuf),
    /// A mount in another mount namespace.
    Namespace {
        /// A process there.
        pid: u32,
        /// Where umount(8) may unmount it there, because the namespace inherited it.
        at: Option<PathBuf>,
    },
    /// A mount in a mount namespace without a visible process. It uses the session's directories.
    Elsewhere,
}

impl Busy {
    /// Returns what kept the tree from being used, if that is the cause of `error`.
    pub fn in_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    pub(crate) fn error(store: &Path, tree: &str, by: TreeUser) -> io::Error {
        io::Error::other(Self { store: store.to_owned(), tree: tree.to_owned(), by })
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = &self.tree;
        match &self.by {
            TreeUser::Process(pid) => write!(f, "it is in use by process {pid}"),
            TreeUser::Mount(at) => write!(f, "it is mounted at {}", at.display()),
            TreeUser::Unmounted(at) => write!(
                f,
                "its mount at {} is gone, and its changes are neither kept nor discarded yet",
                at.display()
            ),
            TreeUser::Covered(at) => {
                write!(
                    f,
                    "{tree} is still mounted at {}, below another mount or moved",
                    at.display()
                )
            }
            TreeUser::Workers(_) => write!(f, "processes work in it"),
            TreeUser::Namespace { pid, .. } => {
                let name = process_name(*pid).unwrap_or_default();
                write!(f, "it is still mounted in the mount namespace of process {pid} ({name})")
            }
            TreeUser::Elsewhere => {
                write!(f, "it is still mounted in a mount namespace without a process")
            }
        }
    }
}

impl std::error::Error for Busy {}
