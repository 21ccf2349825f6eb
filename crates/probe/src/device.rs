//! How busy a device is, and how much is still to be written.

use crate::mounts::DeviceId;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

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

/// Requests that change a disk and that each whole disk of this machine has completed:
/// writes and discards. A partition's are counted for its disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes(BTreeMap<DeviceId, u64>);

impl Writes {
    /// The counts now; none where `/proc/diskstats` cannot be read.
    pub fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/diskstats").unwrap_or_default())
    }

    /// Parses `/proc/diskstats`: numbers, name, then the fields of
    /// Documentation/admin-guide/iostats.rst.
    fn parse(text: &str) -> Self {
        const WRITES: usize = 4;
        const DISCARDS: usize = 11;
        let count = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
            let device =
                DeviceId { major: number(0)?.try_into().ok()?, minor: number(1)?.try_into().ok()? };
            let sum = number(3 + WRITES)? + number(3 + DISCARDS).unwrap_or(0);
            Some((device, sum))
        };
        Self(text.lines().filter_map(count).collect())
    }

    /// The whole disks that have completed more writes than in `earlier`, and those of
    /// which the kernel keeps no counts.
    pub fn disks_written_since(&self, earlier: &Self) -> Vec<DeviceId> {
        let changed = self.0.iter().filter(|(device, count)| earlier.0.get(device) != Some(count));
        let changed = changed.map(|(device, _)| *device);
        let silent = self.0.keys().copied().filter(|device| !is_counted(*device));
        let mut disks: Vec<DeviceId> =
            changed.chain(silent).filter(|d| !is_partition(*d)).collect();
        disks.sort_unstable();
        disks.dedup();
        disks
    }
}

fn attribute(device: DeviceId, name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/sys/dev/block/{device}/{name}")).ok()
}

fn is_partition(device: DeviceId) -> bool {
    attribute(device, "partition").is_some()
}

/// Whether the kernel counts the requests of `device` (`queue/iostats` in sysfs). A disk
/// without a size, such as a loop device without a file, has none to count.
fn is_counted(device: DeviceId) -> bool {
    let is = |name, value: &str| attribute(device, name).is_some_and(|text| text.trim() == value);
    !is("queue/iostats", "0") || is("size", "0")
}

/// Whether the disk `device`, or a partition of it, belongs to a mounted file system of any
/// mount namespace or to a device that is stacked on it. The file systems are those that
/// show their devices in sysfs: ext4, XFS, f2fs, btrfs.
pub fn is_claimed(device: DeviceId) -> bool {
    let Ok(disk) = std::fs::canonicalize(format!("/sys/dev/block/{device}")) else { return false };
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let partitions = entries(&disk).map(|entry| entry.path());
    let partitions = partitions.filter(|path| path.join("partition").exists());
    std::iter::once(disk.clone()).chain(partitions).any(|part| {
        let Some(name) = part.file_name() else { return false };
        let is_listed = |directory: &Path| directory.join(name).exists();
        entries(&part.join("holders")).next().is_some()
            || ["ext4", "xfs", "f2fs"].iter().any(|fs| is_listed(&Path::new("/sys/fs").join(fs)))
            || entries(Path::new("/sys/fs/btrfs")).any(|fs| is_listed(&fs.path().join("devices")))
    })
}

/// A number that changes when the disk `device` is another one, such as a loop device with
/// another file (`diskseq` in sysfs, Linux 5.15); `None` when it is no disk any more.
pub fn identity(device: DeviceId) -> Option<String> {
    attribute(device, "size").filter(|size| size.trim() != "0")?;
    Some(attribute(device, "diskseq").unwrap_or_default())
}

/// The device file of the block device `device`, which devtmpfs names after the kernel's
/// `uevent`; `None` where `/dev` has none.
pub fn node(device: DeviceId) -> Option<PathBuf> {
    let text = attribute(device, "uevent")?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    let path = Path::new("/dev").join(name);
    (block_device(path.to_str()?) == Some(device)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "   7       0 loop0 5 0 0 0 1 0 0 0 0 0 0 2 0 0 0 0 0\n\
        \x20254       0 vda 9 1 2 3 40 5 6 7 0 8 9 0 0 0 0 1 2\nnonsense\n";

    #[test]
    fn a_disk_is_written_when_it_has_completed_a_write_or_a_discard() {
        let before = Writes::parse(BEFORE);
        let loop0 = DeviceId { major: 7, minor: 0 };
        assert_eq!(before.0.len(), 2);
        assert_eq!(before.0[&loop0], 3);
        let reads = Writes::parse(&BEFORE.replace("loop0 5", "loop0 6"));
        assert_eq!(reads, before);
        for (old, new) in [("loop0 5 0 0 0 1", "loop0 5 0 0 0 2"), ("0 2 0 0", "0 3 0 0")] {
            let after = Writes::parse(&BEFORE.replace(old, new));
            assert!(after.disks_written_since(&before).contains(&loop0), "{new}");
        }
        let counted = before.disks_written_since(&before);
        assert!(!counted.contains(&loop0), "{counted:?}");
        assert!(before.disks_written_since(&Writes::default()).contains(&loop0), "a new disk");
    }

    #[test]
    fn dirty_and_writeback_are_added_up_in_bytes() {
        let text = "MemFree: 5 kB\nDirty:       12 kB\nWriteback:     3 kB\nWritebackTmp: 9 kB\n";
        assert_eq!(dirty_in(text), 15 * 1024);
        assert_eq!(dirty_in(""), 0);
    }
}
