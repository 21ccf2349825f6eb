//! The content of a tree, to check whether two trees are identical and where they differ.
//!
//! A program's checks of its own files do not find lost data: with half of its files empty,
//! dpkg's checks report nothing. A manifest contains everything that a program can see of each
//! path, except what no two trees share (inode numbers, directory sizes, ctime, atime).

mod diff;
mod escape;
mod options;
mod scan;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::diff::{Difference, Field, diff};
pub use self::options::ManifestOptions;
use crate::Result;

/// The content of a tree. As JSON, an object of paths.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest {
    /// The entries by their path below the root, which is itself `.`. Bytes that are not UTF-8
    /// are written `\xNN`, control characters as in Rust, and a backslash twice.
    pub entries: BTreeMap<String, Entry>,
}

/// One path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    /// Type of the file.
    pub kind: FileKind,
    /// Permissions with set-id and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length of a file's content in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// SHA-256 of a file's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Major and minor number of a device node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdev: Option<(u32, u32)>,
    /// The first path of the hard links to the same inode, if there are several in the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<String>,
    /// Extended attributes that this process may read, access control lists among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<String, String>,
    /// Seconds and nanoseconds of the last change, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<(i64, u32)>,
    /// Why a part of the entry could not be read. On a damaged disk this is a finding like any
    /// other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// The type of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A mount point. The mounted file system is not read, and the entry has no other field.
    Mount,
    /// The kernel reports no type.
    Unknown,
}

impl Manifest {
    /// Reads the tree at `root`, without times. Does not cross mounts or follow links.
    ///
    /// # Errors
    /// `root` cannot be opened. An error below `root` is noted in its entry.
    pub fn read(root: impl AsRef<Path>) -> Result<Self> {
        Self::with(root, &ManifestOptions::default())
    }

    /// Like [`Manifest::read`], with options.
    ///
    /// # Errors
    /// Those of [`Manifest::read`].
    pub fn with(root: impl AsRef<Path>, options: &ManifestOptions) -> Result<Self> {
        scan::scan(root.as_ref(), options)
    }

    /// Returns the manifest without the entries that the options ignore; an ignored directory
    /// is left out with its whole subtree.
    #[must_use]
    pub fn without_ignored(mut self, options: &ManifestOptions) -> Self {
        let ignored = |path: &str| {
            let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
            ends.into_iter().any(|end| options.ignores(&path[..end]))
        };
        self.entries.retain(|path, _| !ignored(path));
        self
    }
}
