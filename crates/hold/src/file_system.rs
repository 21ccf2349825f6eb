//! A mounted file system below held files.

use crate::file_id::FileId;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_probe::mounts::{self, MNT_ID_UNIQUE, Mount};
use synconce_probe::super_block;

/// A mounted file system below held files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// The mount point.
    pub point: PathBuf,
    /// The id of the mount: the unique id where the kernel has it (statx(2),
    /// STATX_MNT_ID_UNIQUE, Linux 6.8), which no later mount gets.
    pub mount: u64,
    /// The super block. `None` in markers of older versions, and if sysfs does not show it.
    #[serde(default)]
    pub super_block: Option<SuperBlock>,
    /// What is at the mount point. `None` in markers of older versions.
    #[serde(default)]
    pub root: Option<FileId>,
    /// The errors that ext4 had counted. `None` in markers of older versions, and if sysfs does not
    /// show the number.
    #[serde(default)]
    pub errors: Option<u64>,
}

/// The directory in sysfs of a super block: see [`synconce_probe::super_block`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuperBlock {
    /// Its path.
    pub directory: PathBuf,
    /// Its inode number.
    pub number: u64,
}

impl FileSystem {
    /// Returns the file system of `path`, or of the nearest directory above that can be opened.
    ///
    /// # Errors
    /// Names the path, or the file of /proc.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
        let (existing, opened) =
            nearest(path, &mounts).on("cannot find the file system of", path)?;
        let id = mounts::id_in_fdinfo(opened).on("cannot find the mount of", existing)?;
        let listed = mounts.iter().find(|mount| mount.id == id);
        // A mount that is listed nowhere is outside of this process' root.
        let point = listed.map_or(existing, |one| &one.point).to_owned();
        let mount = mount_id(existing).map_or(id, |unique| unique.id);
        let super_block = listed.and_then(super_block::directory);
        let super_block = super_block.map(|(directory, number)| SuperBlock { directory, number });
        let errors = super_block.as_ref().and_then(SuperBlock::errors);
        let root = FileId::read(&point).ok().flatten();
        Ok(Self { point, mount, super_block, root, errors })
    }

    /// Whether `path` is on this file system, by whatever mount.
    pub(crate) fn has(&self, path: &Path) -> bool {
        let there = Self::of(path);
        mount_id(path).is_ok_and(|id| id.id == self.mount)
            || self.super_block.is_some()
                && there.is_ok_and(|there| there.super_block == self.super_block)
    }
}

impl SuperBlock {
    /// Returns the number of errors that its ext4 has counted ([`super_block::errors`]).
    pub(crate) fn errors(&self) -> Option<u64> {
        super_block::errors(&self.directory)
    }
}

/// The id of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountId {
    pub id: u64,
    pub is_unique: bool,
}

/// Opens `path`, or the nearest directory above if `path` does not exist, or if its file system was
/// shut down: the root of that file system can be opened. Above its mount point is another file
/// system.
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

/// Returns the id of the mount that `path` is on.
pub(crate) fn mount_id(path: &Path) -> Result<MountId, Errno> {
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
        let there = FileSystem::of(place.path()).unwrap();
        std::fs::write(place.path().join("file"), "").unwrap();
        for missing in ["missing/below", "file/below"] {
            assert_eq!(FileSystem::of(&place.path().join(missing)).unwrap(), there, "{missing}");
        }
        std::os::unix::fs::symlink("loop", place.path().join("loop")).unwrap();
        let error = FileSystem::of(&place.path().join("loop/below")).unwrap_err();
        assert_eq!(error.io().raw_os_error(), Some(Errno::LOOP.raw_os_error()), "{error}");
    }
}
