//! What a tree contains, to say whether two trees are identical and where they differ.
//!
//! Checks that a program makes of its own files are no oracle for lost data: with half of its files
//! empty, dpkg's find nothing. A manifest has everything of each path that a program can see, but for
//! what no two trees share (inode numbers, directory sizes, ctime, atime).

mod diff;
mod escape;
mod options;
mod scan;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::diff::{Difference, Field, diff};
pub use self::options::Options;
use crate::Result;

/// What a tree contains. As JSON, an object of paths.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest {
    /// By path below the root, which is itself `.`. Bytes that are not UTF-8 are written `\xNN`,
    /// control characters as in Rust, and a backslash twice.
    pub entries: BTreeMap<String, Entry>,
}

/// One path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
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
    /// Where a symbolic link points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Major and minor number of a device node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdev: Option<(u32, u32)>,
    /// The first path of the hard links to the same inode, if there are several in the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<String>,
    /// Extended attributes that this process may see, access control lists among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<String, String>,
    /// Seconds and nanoseconds of the last change, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<(i64, u32)>,
    /// Why a part of it could not be read: on a damaged disk a finding like any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
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
    /// Something is mounted here; it is not looked into, and nothing else is said of it.
    Mount,
    /// The kernel would not say.
    Unknown,
}

impl Manifest {
    /// Reads the tree at `root`, without times. Does not cross mounts or follow links.
    ///
    /// # Errors
    /// `root` cannot be opened. What cannot be read below it is noted in its entry.
    pub fn of(root: impl AsRef<Path>) -> Result<Self> {
        Self::with(root, &Options::default())
    }

    /// As [`Manifest::of`], with options.
    ///
    /// # Errors
    /// As there.
    pub fn with(root: impl AsRef<Path>, options: &Options) -> Result<Self> {
        scan::scan(root.as_ref(), options)
    }

    /// The manifest without what the options ignore, whole subtrees with their top.
    #[must_use]
    pub fn without_ignored(mut self, options: &Options) -> Self {
        let ignored = |path: &str| {
            let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
            ends.into_iter().any(|end| options.ignores(&path[..end]))
        };
        self.entries.retain(|path, _| !ignored(path));
        self
    }
}
