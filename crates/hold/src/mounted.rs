//! Whether a file system was mounted all the time since a hold started.

use crate::file_system::{FileSystem, MountId, SuperBlock, mount_id};
use crate::record::HoldRecord;
use crate::runtime::guard;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;
use synconce_durable::file_system::find_aborted_journal;
use synconce_probe::mounts::{self, Mount};
use synconce_probe::super_block;

/// Whether each file system of `record` has been mounted all the time since the record was
/// written, in the boot of the record; `None` if that is unknown.
///
/// The super block decides if sysfs shows it: the mounts of a container end with the container, but
/// the host still has the same super block mounted. Otherwise the mount of the start decides, by
/// its id, also if it was moved. Before Linux 6.8 the id may belong to a later mount, so the mount
/// counts only while the hold keeps it from being unmounted. Since 6.8 a mount does not count while
/// another one covers it.
pub fn were_mounted(record: &HoldRecord) -> Option<bool> {
    let mounts = mounts::ours().unwrap_or_default();
    let was_mounted = |system| match is_alive(system) {
        None => is_still_mounted(record, system, &mounts).then_some(true),
        known => known,
    };
    let known: Vec<_> = record.file_systems.iter().map(was_mounted).collect();
    if known.contains(&Some(false)) {
        Some(false)
    } else {
        known.iter().all(Option::is_some).then_some(true)
    }
}

fn is_alive(system: &FileSystem) -> Option<bool> {
    let SuperBlock { directory, number } = system.super_block.as_ref()?;
    super_block::is_alive(directory, *number)
}

/// Whether the disk of `system` writes nothing more because of an error. XFS answers each call with
/// an error then, while it is mounted.
pub(crate) fn has_failed(system: &FileSystem) -> bool {
    mount_id(&system.point) == Err(Errno::IO)
        || is_aborted(system, &mounts::ours().unwrap_or_default())
}

/// Whether ext4 has aborted its journal. Either an option of the mount says so (since Linux 6.15;
/// before, only `abort` of a remount). Or ext4 has counted errors since the hold started, and is
/// read-only or has a stopped journal. If the journal's own timer aborted it, neither that option
/// nor `ro` is shown by stable kernels since 2024 (6.1.192) and by 6.18. A remount to read-only by
/// an operator loses nothing.
fn is_aborted(system: &FileSystem, mounts: &[Mount]) -> bool {
    let Some(mount) = mounts.iter().rev().find(|mount| mount.point == system.point) else {
        return false;
    };
    let has_errors = || {
        let now = system.super_block.as_ref().and_then(SuperBlock::errors);
        now.is_some_and(|now| now > system.errors.unwrap_or(0))
    };
    // On a frozen file system this waits for the thaw.
    let has_stopped = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let point = rustix::fs::open(&system.point, flags, Mode::empty());
        point.is_ok_and(|point| find_aborted_journal(point.as_fd(), &[]).is_err())
    };
    ["emergency_ro", "shutdown", "abort"].iter().any(|name| mount.has_option(name))
        || has_errors() && (mount.has_option("ro") || is_where_it_was(system) && has_stopped())
}

/// Whether `system` is at its mount point still. Another mount namespace has another mount of the
/// file system.
pub(crate) fn is_where_it_was(system: &FileSystem) -> bool {
    system.has(&system.point)
}

fn is_still_mounted(record: &HoldRecord, system: &FileSystem, mounts: &[Mount]) -> bool {
    match mount_id(&system.point) {
        Ok(MountId { is_unique: false, .. }) | Err(Errno::NOSYS) => {
            let listed = mounts.iter().find(|mount| mount.id == system.mount);
            return listed.is_some_and(|mount| is_pinned(record, mount, mounts));
        }
        Ok(there) if there.id == system.mount => return true,
        _ => {}
    }
    let has_moved = |mount: &Mount| mount_id(&mount.point).is_ok_and(|it| it.id == system.mount);
    // A look at another kind of file system can block for ever: its server may be gone.
    mounts.iter().filter(|mount| mount.kind().is_held()).any(has_moved)
}

/// Whether an overlay of the hold, or a file that its guard keeps open, is on `system`.
fn is_pinned(record: &HoldRecord, system: &Mount, mounts: &[Mount]) -> bool {
    let has_guard = guard(&record.name).is_some();
    let places = record.places().unwrap_or_default();
    places.iter().zip(record.held()).any(|(place, held)| {
        place.path().starts_with(&system.point)
            && (place.mount(mounts).is_some() || has_guard && held.kind.is_file())
    })
}
