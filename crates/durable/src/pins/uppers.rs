//! The file system of an overlay's upper directory.

use super::below;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::path::Path;
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts::{DeviceId, Mount, mount_id};

/// Returns the file system of the upper directory of the overlay `mount`, as seen below `root`
/// among `mounts`. Returns nothing for any other mount.
///
/// A relative name is relative to the working directory of the process that mounted the
/// overlay, which is unknown, and a container does not see the upper directory. Then the disks
/// of the overlay's size are returned, because statfs(2) of an overlay reports its upper file
/// system. For a volatile overlay this guess is not safe enough, and nothing is returned.
pub fn uppers_of(mount: &Mount, mounts: &[Mount], root: &Path) -> Vec<DeviceId> {
    let Some(upper) = mount.option("upperdir") else { return Vec::new() };
    match named_upper(&upper, mounts, root) {
        Some(device) => vec![device],
        None if mount.is_volatile() => Vec::new(),
        None => of_size(mount, mounts, root),
    }
}

fn named_upper(upper: &Path, mounts: &[Mount], root: &Path) -> Option<DeviceId> {
    let upper = upper.strip_prefix("/").ok()?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty()).ok()?;
    // Links are resolved against this root.
    let within = ResolveFlags::IN_ROOT;
    let id = loop {
        match rustix::fs::openat2(&root, upper, flags, Mode::empty(), within) {
            // A rename or mount happened anywhere while ".." was looked up (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) => {}
            upper => break mount_id(upper.ok()?),
        }
    };
    mounts.iter().find(|mount| Some(mount.id) == id).map(|mount| mount.device)
}

fn of_size(overlay: &Mount, mounts: &[Mount], root: &Path) -> Vec<DeviceId> {
    let size = |mount: &Mount| {
        let system = rustix::fs::statfs(below(root, &mount.point)).ok()?;
        Some((system.f_blocks, system.f_bsize))
    };
    let is_disk = |mount: &&Mount| mount.writable && matches!(mount.kind(), SyncKind::Disk { .. });
    let Some(of_overlay) = size(overlay) else { return Vec::new() };
    let disks = mounts.iter().filter(is_disk).filter(|mount| size(mount) == Some(of_overlay));
    disks.map(|mount| mount.device).collect()
}
