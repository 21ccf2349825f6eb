//! Finds the file system of an overlay's upper directory.

use super::below;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts::{DeviceId, Mount, mount_id};

/// Returns the file system of the upper directory of the overlay `mount`, as seen below `root`
/// among `mounts`. Returns nothing for any other mount.
///
/// The directory may not be found. In a container it may be invisible. A relative path starts at
/// the working directory of the process that mounted the overlay, which is unknown. And another
/// file system, such as the overlay itself, may be mounted there by now. Then this returns all
/// disks with the size of the overlay, because statfs(2) of an overlay reports its upper file
/// system. For a volatile overlay this guess is not safe enough, and nothing is returned.
pub fn uppers_of(mount: &Mount, mounts: &[Mount], root: &Path) -> Vec<DeviceId> {
    let Some(upper) = mount.option("upperdir") else { return Vec::new() };
    match named_upper(mount, &upper, mounts, root) {
        Some(device) => vec![device],
        None if mount.is_volatile() => Vec::new(),
        None => of_size(mount, mounts, root),
    }
}

/// Returns the file system at the name `upper`, unless another one was mounted there since.
fn named_upper(overlay: &Mount, upper: &Path, mounts: &[Mount], root: &Path) -> Option<DeviceId> {
    let upper = upper.strip_prefix("/").ok()?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root_directory = rustix::fs::open(root, flags, Mode::empty()).ok()?;
    let within = ResolveFlags::IN_ROOT;
    let upper = loop {
        match rustix::fs::openat2(&root_directory, upper, flags, Mode::empty(), within) {
            // A rename or mount happened anywhere while ".." was looked up (openat2(2)).
            Err(Errno::AGAIN | Errno::INTR) => {}
            upper => break upper.ok()?,
        }
    };
    let id = mount_id(&upper);
    let mount = mounts.iter().find(|mount| Some(mount.id) == id)?;
    let is_upper = match mount.kind() {
        // No overlay is below another one.
        SyncKind::Stacked => false,
        SyncKind::Disk { .. } => {
            // The size of a file system of ZFS changes from time to time.
            let is_equal = |overlay| (0..3).any(|_| size(&overlay) == size(&upper));
            open_root(overlay, root).is_none_or(is_equal)
        }
        // The server of the file system may not answer statfs(2).
        _ => true,
    };
    is_upper.then_some(mount.device)
}

fn of_size(overlay: &Mount, mounts: &[Mount], root: &Path) -> Vec<DeviceId> {
    let size_of = |mount: &Mount| open_root(mount, root).and_then(size);
    let is_disk = |mount: &&Mount| mount.writable && matches!(mount.kind(), SyncKind::Disk { .. });
    let Some(of_overlay) = size_of(overlay) else { return Vec::new() };
    let disks = mounts.iter().filter(is_disk).filter(|mount| size_of(mount) == Some(of_overlay));
    disks.map(|mount| mount.device).collect()
}

/// Opens the root of `mount`, unless another mount covers it.
fn open_root(mount: &Mount, root: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::open(below(root, &mount.point), flags, Mode::empty()).ok()?;
    (mount_id(&opened) == Some(mount.id)).then_some(opened)
}

/// Returns the blocks of a file system, and their size.
fn size(file: impl AsFd) -> Option<(u64, i64)> {
    let system = rustix::fs::fstatfs(file).ok()?;
    Some((system.f_blocks, system.f_bsize))
}
