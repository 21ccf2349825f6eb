//! The file systems that a rig can make.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A file system that a rig can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FsKind {
    /// ext4 in ordered mode, everything initialised at mkfs.
    Ext4,
    /// XFS; at least 300 MiB.
    Xfs,
    /// Btrfs, single device; at least 110 MiB.
    Btrfs,
}

impl FsKind {
    /// Every kind, for tests that apply to each.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// Returns the name that mount(8) uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Returns the mkfs program.
    pub(crate) const fn mkfs(self) -> &'static str {
        match self {
            Self::Ext4 => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
            Self::Btrfs => "mkfs.btrfs",
        }
    }

    /// Returns the Debian package of the mkfs program.
    pub(crate) const fn package(self) -> &'static str {
        match self {
            Self::Ext4 => "e2fsprogs",
            Self::Xfs => "xfsprogs",
            Self::Btrfs => "btrfs-progs",
        }
    }
}

impl fmt::Display for FsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FsKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("{text}: not one of ext4, xfs, btrfs"))
    }
}
