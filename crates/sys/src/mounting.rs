//! mount_setattr(2), which `rustix::mount` does not have.

use crate::check;
use rustix::mount::MountAttrFlags;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const READ_ONLY: u64 = MountAttrFlags::MOUNT_ATTR_RDONLY.bits() as u64;
const NO_ACCESS_TIME: u64 = MountAttrFlags::MOUNT_ATTR_NOATIME.bits() as u64;
/// The access-time bits, one setting of several values; cleared before a value is set.
const ACCESS_TIME: u64 = MountAttrFlags::MOUNT_ATTR__ATIME.bits() as u64;

/// `struct mount_attr` (linux/mount.h).
#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// The mounts that a change affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only the mount itself.
    This,
    /// The mount and all mounts below it.
    Below,
}

/// Makes a mount read-only. `mount` is the mount's root; the mount need not be attached.
///
/// # Errors
/// `ENOSYS` before Linux 5.12; `EINVAL` if `mount` is not the root of a mount.
pub fn make_read_only(mount: BorrowedFd<'_>, reach: Reach) -> io::Result<()> {
    set(mount, reach, &MountAttributes { set: READ_ONLY, ..MountAttributes::default() })
}

/// Prevents reads of the mount whose root is `mount` from changing access times.
///
/// # Errors
/// As for [`make_read_only`].
pub fn leave_access_times(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attributes =
        MountAttributes { set: NO_ACCESS_TIME, clear: ACCESS_TIME, ..MountAttributes::default() };
    set(mount, Reach::This, &attributes)
}

fn set(mount: BorrowedFd<'_>, reach: Reach, attributes: &MountAttributes) -> io::Result<()> {
    let recursive = if reach == Reach::Below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the kernel reads a terminated string and a structure of the size given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            std::ptr::from_ref(attributes),
            size_of::<MountAttributes>(),
        )
    })
    .map(drop)
}
