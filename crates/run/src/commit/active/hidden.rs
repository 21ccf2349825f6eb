//! File systems to which no path leads, because other mounts cover them.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;
use synconce_probe::mounts::{self, Mount, mount_id};
use synconce_sys::namespace::{UnshareFlags, unshare};

/// Opens the root of `mount`, which other mounts cover. A thread makes a copy of the mount
/// namespace, and unmounts the covering mounts there. The copy ends before this function returns,
/// or without `CAP_SYS_CHROOT` shortly after. Returns `None` if the mount is gone, or if this
/// process may not copy the namespace (`CAP_SYS_ADMIN`).
pub(super) fn open(mount: &Mount) -> Option<OwnedFd> {
    let mount = mount.clone();
    // unshare(2) moves the calling thread alone.
    let thread = thread::Builder::new().name("hidden".into());
    thread.spawn(move || open_and_return(&mount)).ok()?.join().ok()?
}

fn open_and_return(mount: &Mount) -> Option<OwnedFd> {
    let namespace = open_at(Path::new("/proc/thread-self/ns/mnt"), OFlags::RDONLY).ok()?;
    let opened = open_in_copy(mount);
    // A thread that exits leaves its namespace only after join() has returned.
    let _ = move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount));
    opened
}

fn open_in_copy(wanted: &Mount) -> Option<OwnedFd> {
    unshare(UnshareFlags::NEWNS).ok()?;
    // The unmounts below reach no other namespace.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).ok()?;
    loop {
        let mounts = mounts::read("thread-self").ok()?;
        // A copy of a mount has a new mount id.
        let identity = |mount: &Mount| (mount.device, mount.root.clone(), mount.point.clone());
        let target = mounts.iter().find(|mount| identity(mount) == identity(wanted))?;
        let (found, is_whole_path) = mount_on_the_way(&target.point)?;
        if found == target.id && is_whole_path {
            return open_at(&target.point, OFlags::RDONLY).ok();
        }
        let parent = |mount: &&Mount| mounts.iter().find(|it| it.id == mount.parent);
        let mut below = std::iter::successors(Some(target), parent).take(mounts.len());
        if below.any(|mount| mount.id == found) {
            // Nothing covers the mount: its mount point was removed.
            return None;
        }
        let cover = mounts.iter().find(|mount| mount.id == found)?;
        unmount(&cover.point, UnmountFlags::DETACH).ok()?;
    }
}

/// Returns the mount to which `path` leads, or the nearest directory above `path` that exists,
/// and whether `path` itself exists.
fn mount_on_the_way(path: &Path) -> Option<(u64, bool)> {
    let open = |path: &Path| open_at(path, OFlags::PATH).ok();
    let (found, file) = path.ancestors().find_map(|above| Some((above, open(above)?)))?;
    Some((mount_id(file)?, found == path))
}

fn open_at(path: &Path, how: OFlags) -> Result<OwnedFd, Errno> {
    let flags = how | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty())
}
