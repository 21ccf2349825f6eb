//! How busy a device is, and how much is still to be written.

use crate::mounts::DeviceId;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Bytes in the page cache that are dirty or being written back, of the whole
/// host (`/proc/meminfo`); 0 when it cannot be read.
pub fn dirty_bytes() -> u64 {
    dirty_in(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

fn dirty_in(meminfo: &str) -> u64 {
    let kib = |name: &str| {
        meminfo
            .lines()
            .find_map(|line| {
                line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok()
            })
            .unwrap_or(0)
    };
    (kib("Dirty:") + kib("Writeback:")) * 1024
}

/// A number that changes while the file system `device` on `source` is being
/// written: the requests that its block device has completed, or, where it has
/// none that is known (zfs, overlay), the dirty bytes of the host.
pub fn movement(device: DeviceId, source: &str) -> u64 {
    completed(device).or_else(|| completed(block_device(source)?)).unwrap_or_else(dirty_bytes)
}

/// The device number of the block device at the path `source`.
fn block_device(source: &str) -> Option<DeviceId> {
    let meta = std::fs::metadata(source).ok().filter(|meta| meta.file_type().is_block_device())?;
    let rdev = meta.rdev();
    Some(DeviceId { major: rustix::fs::major(rdev), minor: rustix::fs::minor(rdev) })
}

/// Reads, writes, discards and flushes that were completed, of
/// `/sys/dev/block/M:m/stat`.
fn completed(device: DeviceId) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/dev/block/{device}/stat")).ok()?;
    // Fields 1, 5, 12 and 16 of Documentation/block/stat.rst.
    let fields: Vec<u64> = text.split_whitespace().map_while(|f| f.parse().ok()).collect();
    Some([0, 4, 11, 15].iter().filter_map(|at| fields.get(*at)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_and_writeback_are_added_up_in_bytes() {
        let text = "MemFree: 5 kB\nDirty:       12 kB\nWriteback:     3 kB\nWritebackTmp: 9 kB\n";
        assert_eq!(dirty_in(text), 15 * 1024);
        assert_eq!(dirty_in(""), 0);
    }
}
