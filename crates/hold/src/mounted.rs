//! Whether a file system was mounted all the time since a hold started.

use crate::file_id::FileId;
use crate::record::{FileSystem, HoldRecord, SuperBlock};
use crate::runtime::guard;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_durable::file_system::find_aborted_journal;
use synconce_probe::mounts::{self, MNT_ID_UNIQUE, Mount};
use synconce_probe::super_block;

/// The id of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MountId {
    id: u64,
    is_unique: bool,
}

/// Returns the file system of `path`, or of the nearest directory above that can be opened.
///
/// # Errors
/// Names the path, or the file of /proc.
pub fn file_system_of(path: &Path) -> Result<FileSystem, Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let (existing, opened) = nearest(path, &mounts).on("cannot find the file system of", path)?;
    let id = mounts::id_in_fdinfo(opened).on("cannot find the mount of", existing)?;
    let listed = mounts.iter().find(|mount| mount.id == id);
    // A mount that is listed nowhere is outside of this process' root.
    let point = listed.map_or(existing, |one| &one.point).to_owned();
    let mount = id_of(existing).map_or(id, |unique| unique.id);
    let super_block = listed.and_then(super_block::directory);
    let super_block = super_block.map(|(directory, number)| SuperBlock { directory, number });
    let errors = super_block.as_ref().and_then(errors_of);
    let root = FileId::read(&point).ok().flatten();
    Ok(FileSystem { point, mount, super_block, root, errors })
}

/// Returns the number of errors that the ext4 of `super_block` has counted. Only e2fsck(8) sets the
/// number to 0.
fn errors_of(super_block: &SuperBlock) -> Option<u64> {
    let text = std::fs::read_to_string(super_block.directory.join("errors_count")).ok()?;
    text.trim().parse().ok()
}

/// Opens `path`, or the nearest directory above if `path` does not exist, or if its file system was shut
/// down: the root of that file system can be opened. Above its mount point is another file system.
fn nearest<'a>(path: &'a Path, mounts: &[Mount]) -> Result<(&'a Path, OwnedFd), Errno> {
    let is_mount_point = |path: &Path| mounts.iter().any(|mount| mount.point == path);
    for above in path.ancestors() {
        match rustix::fs::open(above, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(opened) => return Ok((above, opened)),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(Errno::IO) if !is_mount_point(above) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::NOENT)
}

/// Whether each file system of `record` has been mounted all the time since the record was
/// written, in the boot of the record; `None` if that is unknown.
///
/// The super block decides if sysfs shows it: a container's end takes the container's mounts
/// away, but the host has mounts of the same super block. Otherwise a mount counts that is still
/// there, also if it was moved. On kernels before 6.8 the id may belong to a later mount, so a
/// mount counts only while the hold keeps it from being unmounted. Since 6.8 a mount does not
/// count while another one covers it.
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

/// Whether `path` is on the file system `system`, by whatever mount.
pub(crate) fn is_in(path: &Path, system: &FileSystem) -> bool {
    let there = file_system_of(path);
    id_of(path).is_ok_and(|id| id.id == system.mount)
        || system.super_block.is_some()
            && there.is_ok_and(|there| there.super_block == system.super_block)
}

/// Whether the disk of `system` writes nothing more because of an error. XFS answers each call with
/// an error then, while it is mounted.
pub(crate) fn has_failed(system: &FileSystem) -> bool {
    id_of(&system.point) == Err(Errno::IO)
        || is_aborted(system, &mounts::ours().unwrap_or_default())
}

/// Whether ext4 has aborted its journal: it shows so (Linux 6.15; before, `abort` alone, of a remount),
/// or it has counted errors since the hold started, and is read-only or has a journal that has stopped.
/// A journal that its own timer aborted is shown neither so nor as `ro`: by the stable kernels since
/// 2024 (6.1.192), and by 6.18. An operator's remount to read-only loses nothing.
fn is_aborted(system: &FileSystem, mounts: &[Mount]) -> bool {
    let Some(mount) = mounts.iter().rev().find(|mount| mount.point == system.point) else {
        return false;
    };
    let has_errors = || {
        let now = system.super_block.as_ref().and_then(errors_of);
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

/// Whether `system` is at its mount point still. In another mount namespace it is there by another
/// mount.
pub(crate) fn is_where_it_was(system: &FileSystem) -> bool {
    is_in(&system.point, system)
}

fn is_still_mounted(record: &HoldRecord, system: &FileSystem, mounts: &[Mount]) -> bool {
    match id_of(&system.point) {
        Ok(MountId { is_unique: false, .. }) | Err(Errno::NOSYS) => {
            let listed = mounts.iter().find(|mount| mount.id == system.mount);
            return listed.is_some_and(|mount| is_pinned(record, mount, mounts));
        }
        Ok(there) if there.id == system.mount => return true,
        _ => {}
    }
    let has_moved = |mount: &Mount| id_of(&mount.point).is_ok_and(|it| it.id == system.mount);
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

fn id_of(path: &Path) -> Result<MountId, Errno> {
    let wanted = MNT_ID_UNIQUE | StatxFlags::MNT_ID;
    let stat = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::NO_AUTOMOUNT, wanted)?;
    let is_unique = stat.stx_mask & MNT_ID_UNIQUE.bits() != 0;
    if is_unique || stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 {
        Ok(MountId { id: stat.stx_mnt_id, is_unique })
    } else {
        Err(Errno::NOSYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_opened_is_not_taken_for_the_directory_above() {
        let place = tempfile::tempdir().unwrap();
        let there = file_system_of(place.path()).unwrap();
        std::fs::write(place.path().join("file"), "").unwrap();
        for missing in ["missing/below", "file/below"] {
            assert_eq!(file_system_of(&place.path().join(missing)).unwrap(), there, "{missing}");
        }
        std::os::unix::fs::symlink("loop", place.path().join("loop")).unwrap();
        let error = file_system_of(&place.path().join("loop/below")).unwrap_err();
        assert_eq!(error.io().raw_os_error(), Some(Errno::LOOP.raw_os_error()), "{error}");
    }
}
