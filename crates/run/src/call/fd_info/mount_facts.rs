//! The mount that a file is on, and why syncs there are not held.

use crate::report::accounts::PassReason;
use rustix::fs::Statx;
use std::path::Path;
use synconce_probe::filesystem::{SyncKind, is_memory_magic, stores_nothing};
use synconce_probe::mounts::{self, DeviceId, MNT_ID_UNIQUE, Mount};

#[derive(Clone, Copy, Debug)]
pub(super) struct MountFacts {
    pub id: u64,
    pub device: DeviceId,
    /// Why syncs on the mount are not held; `None` if they are.
    pub not_held: Option<PassReason>,
}

impl MountFacts {
    pub(super) fn from_mount(mount: &Mount) -> Self {
        Self { id: mount.id, device: mount.device, not_held: reason_on(mount) }
    }

    /// Queries the file system of the file at `path`, on the mount `id`.
    pub(super) fn queried(id: u64, device: DeviceId, path: &Path) -> Self {
        // Pipes and sockets are on internal mounts of the kernel.
        let reason = || {
            let magic = rustix::fs::statfs(path).map_or(0, |system| system.f_type as u64);
            if is_memory_magic(magic) { PassReason::Memory } else { PassReason::OtherType }
        };
        let not_held = if mounts::at(path).is_some() { None } else { Some(reason()) };
        Self { id, device, not_held }
    }
}

/// Returns the mount `id` from the mount table of `thread` or of this process. If `thread` has a
/// chroot in another namespace, the mount can be missing from both tables. Then only the file
/// system itself can be queried.
pub(crate) fn listed(thread: u32, id: u64) -> Option<Mount> {
    [thread.to_string().as_str(), "self"].into_iter().find_map(|process| {
        let mounts = mounts::read(process).unwrap_or_default();
        mounts.into_iter().find(|mount| mount.id == id)
    })
}

/// Returns the mount's unique id, from Linux 6.8 on.
pub(super) fn unique(stat: &Statx) -> Option<u64> {
    (stat.stx_mask & MNT_ID_UNIQUE.bits() != 0).then_some(stat.stx_mnt_id)
}

/// Returns why a sync of files on `devices`, which `thread` has mapped, passes. Returns `None` if
/// all devices have file systems that are held.
pub(super) fn why_passed(thread: u32, devices: &[DeviceId]) -> Option<PassReason> {
    let theirs = mounts::read(&thread.to_string()).unwrap_or_default();
    let ours = mounts::ours().unwrap_or_default();
    let is_disk = |device: &DeviceId| {
        let mut all = theirs.iter().chain(&ours);
        all.any(|mount| mount.device == *device && mount.kind().is_held())
    };
    if devices.iter().all(is_disk) {
        return None;
    }
    let on_them = |mount: &&Mount| devices.contains(&mount.device);
    let reason = theirs.iter().chain(&ours).filter(on_them).find_map(reason_on);
    // Neither table lists a disk whose mount is detached or in a third namespace. The commit cannot
    // reach it. The major number is 0 for a file system without a block device of its own, and for
    // btrfs. Only the tables distinguish btrfs from a mapping in memory.
    let is_out_of_reach = |device: &DeviceId| device.major != 0 && !is_disk(device);
    let unlisted = || match devices.iter().any(is_out_of_reach) {
        true => PassReason::Uncovered,
        // A shared anonymous mapping is on an internal mount of the kernel, which no table lists.
        false => PassReason::Memory,
    };
    Some(reason.unwrap_or_else(unlisted))
}

/// Returns why syncs on `mount` pass; `None` if they are held.
fn reason_on(mount: &Mount) -> Option<PassReason> {
    Some(match mount.kind() {
        SyncKind::Disk { .. } | SyncKind::Stacked => return None,
        SyncKind::Network => PassReason::Network,
        SyncKind::Fuse { .. } => PassReason::Fuse,
        SyncKind::Other if stores_nothing(&mount.type_name) => PassReason::Memory,
        SyncKind::Other => PassReason::OtherType,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_disk_that_no_table_lists_is_not_said_to_be_in_memory() {
        let thread = std::process::id();
        let device = |major| DeviceId { major, minor: 0xf_ffff };
        assert_eq!(why_passed(thread, &[device(7)]), Some(PassReason::Uncovered));
        assert_eq!(why_passed(thread, &[device(0)]), Some(PassReason::Memory));
    }
}
