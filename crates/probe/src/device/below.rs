//! Finds the disks below a file system whose requests show that a flush still makes progress. The
//! flush of a loop device is one request: while it lasts, the kernel writes the whole dirty image
//! to the disk of the file. A btrfs names one of its devices, and writes to all of them.

use super::{block_device, dirty_bytes, is_counted, is_partition, may_be_busy, transferred};
use crate::mounts::{self, DeviceId, Mount};
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The mounts of this process at one moment, if they are asked for.
pub(super) struct Sample(LazyCell<Vec<Mount>>);

impl Sample {
    pub fn new() -> Self {
        // Without a look at any directory, which a server may have to answer.
        Self(LazyCell::new(|| mounts::read("self").unwrap_or_default()))
    }

    /// Returns a number that changes while the file system `device` on `source` is being written:
    /// the transferred sectors of its disks or, if no block device is known or one is not counted,
    /// the host's dirty bytes.
    pub fn movement_of_file_system(&self, device: DeviceId, source: &str) -> u64 {
        let mut disks = Disks::default();
        if disks.add_file_system(device, source, &self.0) && disks.are_counted() {
            disks.transferred()
        } else {
            dirty_bytes()
        }
    }

    /// Returns a number that changes while a disk that has the file of the loop device `disk`, or
    /// of one below it, transfers sectors.
    pub fn movement_below(&self, disk: DeviceId) -> u64 {
        let mut disks = Disks::default();
        disks.look_below(disk, &self.0);
        disks.transferred()
    }
}

#[derive(Default)]
struct Disks {
    /// The disks whose requests count.
    counted: BTreeSet<DeviceId>,
    seen: BTreeSet<DeviceId>,
}

impl Disks {
    fn transferred(&self) -> u64 {
        self.counted.iter().filter_map(|disk| transferred(*disk)).sum()
    }

    /// Whether the kernel counts the requests of every disk: not without `queue/iostats`, nor to a
    /// namespace of NVMe with several paths before Linux 6.3. A mount alone reads.
    fn are_counted(&self) -> bool {
        if self.counted.iter().any(|disk| transferred(*disk) == Some(0)) {
            return false;
        }
        let whole = |disk: &DeviceId| directory(*disk).and_then(|sysfs| number_in(&sysfs));
        self.counted.iter().filter_map(whole).all(is_counted)
    }

    /// Adds the disks of a file system. Returns whether a block device of it is known.
    fn add_file_system(&mut self, device: DeviceId, source: &str, mounts: &[Mount]) -> bool {
        let disks = match block_device(source) {
            _ if transferred(device).is_some() => vec![device],
            Some(disk) => devices_of_btrfs(disk).unwrap_or_else(|| vec![disk]),
            None => return false,
        };
        for disk in disks {
            self.counted.insert(disk);
            self.look_below(disk, mounts);
        }
        true
    }

    /// Adds the disks with the files of loop devices at or below `disk` that may have pending
    /// requests. Without one, the disk of the file works for others. Other disks below do not
    /// count: a disk of device-mapper or md completes writes one by one, and shares its parts with
    /// other disks.
    fn look_below(&mut self, disk: DeviceId, mounts: &[Mount]) {
        let Some(sysfs) = directory(disk).filter(|_| self.seen.insert(disk)) else { return };
        for part in fs::read_dir(sysfs.join("slaves")).into_iter().flatten().flatten() {
            number_in(&part.path()).into_iter().for_each(|part| self.look_below(part, mounts));
        }
        let file = fs::read_to_string(sysfs.join("loop/backing_file")).ok();
        let file = file.filter(|_| number_in(&sysfs).is_some_and(may_be_busy));
        // Another mount namespace may have the file.
        let above = |file: String| mounts::above(Path::new(file.trim_end_matches('\n')), mounts);
        let mount = file.and_then(above);
        // The source of a file server in user space may be a path on another one.
        if let Some(mount) = mount.filter(|mount| !mount.type_name.starts_with("fuse")) {
            self.add_file_system(mount.device, &mount.source, mounts);
        }
    }
}

/// Returns the directory in sysfs of `disk`, or of the whole disk if it is a partition.
fn directory(disk: DeviceId) -> Option<PathBuf> {
    let directory = Path::new("/sys/dev/block").join(disk.to_string()).canonicalize().ok()?;
    if is_partition(disk) { directory.parent().map(Path::to_owned) } else { Some(directory) }
}

/// Returns the devices of the mounted btrfs that has `disk`, if there is one.
fn devices_of_btrfs(disk: DeviceId) -> Option<Vec<DeviceId>> {
    let systems = fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten();
    let devices = |system: fs::DirEntry| -> Vec<_> {
        let entries = fs::read_dir(system.path().join("devices")).into_iter().flatten().flatten();
        entries.filter_map(|entry| number_in(&entry.path())).collect()
    };
    systems.map(devices).find(|devices| devices.contains(&disk))
}

/// Returns the device number of the disk with the directory `sysfs`.
fn number_in(sysfs: &Path) -> Option<DeviceId> {
    let text = fs::read_to_string(sysfs.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(DeviceId { major: major.parse().ok()?, minor: minor.parse().ok()? })
}
