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
    /// The sync failed: the kernel lost a write during the run or now, or has stopped writing the
    /// file system.
    Sync(io::Error),
    /// No descriptor was free, so the sync did not begin. A later sync can still report an error.
    NotBegun(io::Error),
    /// The device file of a disk could not be opened or flushed.
    Disk(PathBuf, io::Error),
    /// The sync made no progress for this long. The disks are those that made none; for the sync of
    /// one file system there are none, because the report names the file system.
    Hung(Duration, Vec<PathBuf>),
    /// The file system is a volatile overlay, and its upper file system is not pinned.
    Volatile,
}

impl SyncFailure {
    /// Whether a later sync may succeed although writes were lost (the kernel reports a loss once).
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
