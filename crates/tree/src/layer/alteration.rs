//! How a layer differs from what was frozen.

use std::fmt;
use std::path::PathBuf;

/// How a layer differs from its fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// Entries differ in these directories below the content.
    Entries(Vec<PathBuf>),
    /// btrfs has counted a change of the snapshot.
    Counted,
    /// The snapshot is no longer read-only.
    Writable,
    /// The content is not the snapshot that was frozen.
    Replaced,
}

impl fmt::Display for Alteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Entries(_) | Self::Counted => "has changed since it was frozen",
            Self::Writable => "was made writable after it was frozen",
            Self::Replaced => "is another subvolume or directory than was frozen",
        })
    }
}
