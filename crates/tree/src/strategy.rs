//! How a clone gets a writable copy.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A way to copy on write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// A snapshot of a btrfs subvolume.
    Snapshot,
    /// An overlay over the frozen layers.
    Overlay,
    /// A copy that shares its extents (`ioctl_ficlone(2)`).
    Reflink,
    /// A copy.
    Copy,
}

impl Strategy {
    /// Returns the name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Overlay => "overlay",
            Self::Reflink => "reflink",
            Self::Copy => "copy",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A strategy, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The strategy.
    pub strategy: Strategy,
    /// Why the strategy was chosen, as text for the user.
    pub reason: String,
}
