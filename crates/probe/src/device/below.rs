//! The disks on which a disk has its data. A flush of such a disk is one request, however much the disks
//! below have to write for it: the whole dirty image of a loop device, for example.

use super::{block_device, completed, dirty_bytes, is_partition};
use crate::mounts::{self, DeviceId, Mount};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The disks on which a file system or a disk has its data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Disks {
    found: BTreeSet<DeviceId>,
    /// A file system without a block device, such as zfs or an overlay, has some of the data.
    is_elsewhere: bool,
}

impl Disks {
    /// Returns the disks of the file system `device`, which is mounted from `source`, with all below them.
    pub fn of_file_system(device: DeviceId, source: &str) -> Self {
        let mut disks = Self::default();
        disks.add_file_system(device, source);
        disks
    }

    /// Returns the disks below `disk`.
    pub fn below(disk: DeviceId) -> Self {
        let mut disks = Self::default();
        disks.add_below(disk);
        disks.found.remove(&disk);
        disks
    }

    /// Returns a number that changes while one of the disks completes requests. For file systems
    /// without a block device it has the host's dirty bytes.
    pub fn movement(&self) -> u64 {
        let requests: u64 = self.found.iter().filter_map(|disk| completed(*disk)).sum();
        requests.wrapping_add(if self.is_elsewhere { dirty_bytes() } else { 0 })
    }

    fn add_file_system(&mut self, device: DeviceId, source: &str) {
        if completed(device).is_some() {
            return self.add(device);
        }
        match block_device(source) {
            // A btrfs shows one of its devices.
            Some(disk) => {
                devices_of_btrfs(disk).into_iter().chain([disk]).for_each(|it| self.add(it));
            }
            None => self.is_elsewhere = true,
        }
    }

    fn add(&mut self, disk: DeviceId) {
        if self.found.insert(disk) {
            self.add_below(disk);
        }
    }

    fn add_below(&mut self, disk: DeviceId) {
        let mut sysfs = PathBuf::from(format!("/sys/dev/block/{disk}"));
        if is_partition(disk) {
            // Its disk has the names of what is below.
            sysfs = sysfs
                .canonicalize()
                .unwrap_or_default()
                .parent()
                .unwrap_or(Path::new(""))
                .to_owned();
        }
        // Parts of a disk of device-mapper or md.
        for part in fs::read_dir(sysfs.join("slaves")).into_iter().flatten().flatten() {
            number_in(&part.path()).into_iter().for_each(|part| self.add(part));
        }
        let file = fs::read_to_string(sysfs.join("loop/backing_file")).ok();
        let mount = file.and_then(|file| mount_of(Path::new(file.trim_end_matches('\n'))));
        // What a file server in user space writes is not counted.
        if let Some(mount) = mount.filter(|mount| !mount.type_name.starts_with("fuse")) {
            self.add_file_system(mount.device, &mount.source);
        }
    }
}

/// Returns the mount that the file of a loop device is on, by the names of mount points alone: a look at
/// the file can wait for its server. Another mount namespace may have the file.
fn mount_of(file: &Path) -> Option<Mount> {
    let above = mounts::ours().ok()?.into_iter().filter(|mount| file.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.as_os_str().len())
}

/// Returns the devices of the mounted btrfs that has `disk`.
fn devices_of_btrfs(disk: DeviceId) -> Vec<DeviceId> {
    let systems = fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten();
    let devices = |system: fs::DirEntry| -> Vec<_> {
        let entries = fs::read_dir(system.path().join("devices")).into_iter().flatten().flatten();
        entries.filter_map(|entry| number_in(&entry.path())).collect()
    };
    systems.map(devices).find(|devices| devices.contains(&disk)).unwrap_or_default()
}

/// Returns the device number of the disk with the directory `sysfs`.
fn number_in(sysfs: &Path) -> Option<DeviceId> {
    let text = fs::read_to_string(sysfs.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(DeviceId { major: major.parse().ok()?, minor: minor.parse().ok()? })
}
