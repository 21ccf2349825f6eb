//! What a file is, whatever its name.

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::path::Path;
use synconce_durable::error::{Context, Error};

/// Identifies a file beyond renames, unmounts and boots: no file on another disk, and no later
/// file on the same disk, has both numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    /// The inode number, by which `find -inum` finds the file.
    pub inode: u64,
    /// When the file was made, in seconds and nanoseconds since 1970. `None` on file systems that
    /// do not record the time (statx(2), STATX_BTIME).
    pub born: Option<(i64, u32)>,
}

impl FileId {
    /// Returns the identity of the file at `path`, which may be a link. Returns `None` if no file
    /// is there.
    ///
    /// # Errors
    /// Names a path that cannot be looked at.
    pub fn of(path: &Path) -> Result<Option<Self>, Error> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        match rustix::fs::statx(CWD, path, flags, StatxFlags::INO | StatxFlags::BTIME) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            stat => {
                let stat = stat.on("cannot look at", path)?;
                let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
                let born = has_birth.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec));
                Ok(Some(Self { inode: stat.stx_ino, born }))
            }
        }
    }
}
