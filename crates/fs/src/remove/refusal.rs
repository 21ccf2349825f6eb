//! Clears file flags and changes modes that prevent a removal.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{FileType, Mode, chmod, fchmod, fstat};
use rustix::io::Errno;

use crate::flags::unflag;
use crate::walk::directory::{Mounts, kind_of, look};

/// Changes what may have caused `errno` when `name` was opened or removed. Returns whether
/// something was changed, so that a retry makes sense.
pub(super) fn overcome(errno: Errno, parent: BorrowedFd<'_>, name: &CStr) -> bool {
    match errno {
        // A flag of the entry or of its parent prevents the removal.
        Errno::PERM => {
            let flagged = unflag_entry(parent, name);
            unflag(parent) | flagged
        }
        Errno::ACCESS => {
            let closed = open_up_entry(parent, name);
            open_up(parent) | closed
        }
        _ => false,
    }
}

fn unflag_entry(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    let Ok(stat) = look(parent, name) else { return false };
    // Other kinds of files have no flags, and opening them may have side effects.
    let opened = match kind_of(&stat) {
        FileType::RegularFile => Mounts::Stop.file(parent, name),
        FileType::Directory => Mounts::Stop.directory(parent, name),
        _ => return false,
    };
    use std::os::fd::AsFd;
    opened.is_ok_and(|file| unflag(file.as_fd()))
}

/// Adds the owner's read, write and search permissions to an open directory.
fn open_up(directory: BorrowedFd<'_>) -> bool {
    let Ok(stat) = fstat(directory) else { return false };
    let mode = Mode::from_raw_mode(stat.st_mode);
    !mode.contains(Mode::RWXU) && fchmod(directory, mode | Mode::RWXU).is_ok()
}

/// Like [`open_up`], for a directory that cannot be opened.
fn open_up_entry(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    let Ok(reference) = Mounts::Stop.reference(parent, name) else { return false };
    let Ok(stat) = fstat(&reference) else { return false };
    let mode = Mode::from_raw_mode(stat.st_mode);
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    // fchmod(2) refuses an O_PATH descriptor.
    let path = format!("/proc/self/fd/{}", reference.as_raw_fd());
    is_directory && !mode.contains(Mode::RWXU) && chmod(path, mode | Mode::RWXU).is_ok()
}
