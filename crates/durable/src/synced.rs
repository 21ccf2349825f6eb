//! The result of one sync.

use std::io;
use std::path::PathBuf;
use std::time::Duration;
use synconce_sys::reason;

/// The time that a sync took, or why it failed.
pub type Synced = Result<Duration, SyncFailure>;

/// Why a sync did not make data durable.
#[derive(Debug)]
pub enum SyncFailure {
    /// The kernel reported a write-back error, during the run or now.
    Sync(io::Error),
    /// The sync was not begun, for want of a descriptor. A later one reports what it would have.
    NotBegun(io::Error),
    /// The device file of a disk could not be opened or flushed.
    Disk(PathBuf, io::Error),
    /// No request was completed for this long, by these disks if they are not named elsewhere.
    Hung(Duration, Vec<PathBuf>),
    /// A volatile overlay whose upper file system cannot be reached.
    Volatile,
}

impl SyncFailure {
    /// Whether a later sync may succeed although writes are lost.
    pub fn may_hide_a_loss(&self) -> bool {
        !matches!(self, Self::NotBegun(_) | Self::Volatile)
    }

    /// Returns the kind of the kernel's error.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Sync(error) | Self::NotBegun(error) | Self::Disk(_, error) => error.kind(),
            Self::Hung(..) => io::ErrorKind::TimedOut,
            Self::Volatile => io::ErrorKind::Other,
        }
    }
}

impl std::fmt::Display for SyncFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sync(error) | Self::NotBegun(error) => f.write_str(&reason(error)),
            Self::Disk(path, error) => {
                write!(f, "cannot flush {}: {}", path.display(), reason(error))
            }
            Self::Hung(time, disks) => {
                write!(f, "no answer for {} s", time.as_secs())?;
                let names: Vec<_> = disks.iter().map(|disk| disk.display().to_string()).collect();
                if names.is_empty() { Ok(()) } else { write!(f, " from {}", names.join(", ")) }
            }
            Self::Volatile => write!(f, "a volatile overlay never becomes durable"),
        }
    }
}
