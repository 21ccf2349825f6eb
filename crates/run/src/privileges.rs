//! Programs that gain privileges when they are executed, which no_new_privs prevents.

use crate::process_tree::user_of;
use rustix::fs::{AtFlags, FileType, StatVfsMountFlags, StatxFlags};
use rustix::thread::{CapabilitySet, capabilities, no_new_privs};
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

/// Whether a filter of this process needs no_new_privs, which this process does not have yet:
/// without CAP_SYS_ADMIN in its user namespace (seccomp(2)).
pub(crate) fn are_lost() -> bool {
    let may = capabilities(None).is_ok_and(|it| it.effective.contains(CapabilitySet::SYS_ADMIN));
    !may && !no_new_privs().unwrap_or(false)
}

/// Whether the execution of `file` by `thread` gains privileges without no_new_privs (execve(2)):
/// the file is setuid, setgid, or has capabilities, and its mount is not nosuid. Root has the
/// privileges already.
pub(crate) fn gains(file: &OwnedFd, thread: u32) -> bool {
    let mask = StatxFlags::TYPE | StatxFlags::MODE;
    let Ok(stat) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, mask) else { return false };
    let is_set = |bits| stat.stx_mode & bits == bits;
    FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile
        && (is_set(SETUID) || is_set(SETGID) || has_capabilities(file))
        && user_of(thread) != Some(0)
        && !rustix::fs::fstatvfs(file).is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::NOSUID))
}

/// Whether `file`, which may be `O_PATH`, has file capabilities (capabilities(7)).
fn has_capabilities(file: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // The attribute has at most 24 bytes (struct vfs_ns_cap_data).
    rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 24]).is_ok()
}
