//! Programs that gain privileges when they are executed, which no_new_privs prevents.

use rustix::fs::{AtFlags, FileType, StatVfsMountFlags, StatxFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The purpose for which a program gains privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gain {
    /// Maps the ids of a user namespace: newuidmap and newgidmap.
    Ids,
    /// Any other purpose, such as sudo's.
    Other,
}

impl Gain {
    /// Returns the purpose of the program at `path`.
    pub fn of(path: &Path) -> Self {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("newuidmap" | "newgidmap") => Self::Ids,
            _ => Self::Other,
        }
    }
}

const SETUID: u16 = 0o4000;
/// setgid without the group's execute permission has another meaning (inode(7)).
const SETGID: u16 = 0o2010;

/// Whether the execution of `file` gains privileges without no_new_privs (execve(2)): the file is
/// setuid, setgid, or has capabilities, and its mount is not nosuid.
pub(crate) fn gains(file: &OwnedFd) -> bool {
    let mask = StatxFlags::TYPE | StatxFlags::MODE;
    let Ok(stat) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, mask) else { return false };
    let is_set = |bits| stat.stx_mode & bits == bits;
    FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile
        && (is_set(SETUID) || is_set(SETGID) || has_capabilities(file))
        && !rustix::fs::fstatvfs(file).is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::NOSUID))
}

/// Whether `file`, which may be `O_PATH`, has file capabilities (capabilities(7)).
fn has_capabilities(file: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // The attribute has at most 24 bytes (struct vfs_ns_cap_data).
    rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 24]).is_ok()
}
