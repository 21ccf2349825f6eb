//! The kernel's own count of flushes. Counts are repeatable; times are not.

use crate::mount::MountProperties;
use std::path::{Path, PathBuf};

/// Position of "flush requests completed" in /sys/block/*/stat (Linux 5.5+,
/// Documentation/block/stat.rst).
const FLUSH_FIELD: usize = 15;

/// The flush count of one device at one moment.
pub(super) struct Flushes {
    stat: PathBuf,
    count: u64,
}

impl Flushes {
    /// Reads the count of the device under a path, if there is one.
    pub(super) fn find(path: Option<&Path>) -> Option<Self> {
        let mount = MountProperties::find(path?)?;
        let stat = stat_file(Path::new(&mount.device))?;
        let count = read(&stat)?;
        Some(Self { stat, count })
    }

    /// Returns the number of flushes completed since.
    pub(super) fn since(&self) -> Option<u64> {
        read(&self.stat)?.checked_sub(self.count)
    }
}

/// Returns the stat file of a device. The kernel counts flushes for whole disks only, so the
/// count of a partition is read from its disk.
fn stat_file(device: &Path) -> Option<PathBuf> {
    let number = rustix::fs::stat(device).ok()?.st_rdev;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let own = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let disk = if own.join("partition").exists() { own.parent()?.to_path_buf() } else { own };
    Some(disk.join("stat"))
}

fn read(stat: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(stat).ok()?;
    text.split_whitespace().nth(FLUSH_FIELD)?.parse().ok()
}
