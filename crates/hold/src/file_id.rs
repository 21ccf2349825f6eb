//! The identity of a file, which does not depend on its name.

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_sys::{btrfs, handle};

const WANTED: StatxFlags = StatxFlags::INO.union(StatxFlags::BTIME);

/// Identifies a file, also after renames, unmounts and boots: no file on another disk, and no later
/// file on the same disk, has the same numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    /// The inode number, by which `find -inum` finds the file.
    pub inode: u64,
    /// When the file was made, in seconds and nanoseconds since 1970. `None` on file systems that
    /// do not record the time (statx(2), STATX_BTIME).
    pub born: Option<(i64, u32)>,
    /// The generation of the inode, in place of the time of birth. ext4 gives each new file a
    /// random number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// The number of a subvolume of btrfs and its disk, of a file that is the root of a subvolume.
    /// A snapshot of the subvolume has the other numbers, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subvolume: Option<u64>,
}

impl FileId {
    /// Returns the identity of the file at `path`, which may be a link. Returns `None` if no file
    /// is there.
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            file => {
                let id = file.and_then(Self::of_open);
                Ok(Some(id.on("cannot look at", path)?))
            }
        }
    }

    /// Returns the identity of an open file.
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn of_open(file: impl AsFd) -> rustix::io::Result<Self> {
        let stat = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, WANTED)?;
        let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = has_birth.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec));
        let generation = if has_birth { None } else { handle::generation(file.as_fd()) };
        let is_subvolume = btrfs::is_subvolume(file.as_fd()).unwrap_or(false);
        // btrfs makes the number from the UUID of the file system and the id of the subvolume.
        let subvolume = if is_subvolume { Some(rustix::fs::fstatvfs(&file)?.f_fsid) } else { None };
        Ok(Self { inode: stat.stx_ino, born, generation, subvolume })
    }

    /// Returns the identity as a word, for names and notes. They leave `subvolume` out: a directory
    /// with notes is no subvolume.
    pub(crate) fn word(&self) -> String {
        let (seconds, nanoseconds) = self.born.unwrap_or_default();
        let generation = self.generation.map(|number| format!("-{number}")).unwrap_or_default();
        format!("{}-{seconds}-{nanoseconds}{generation}", self.inode)
    }
}
