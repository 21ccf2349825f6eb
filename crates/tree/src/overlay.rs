//! Overlays by fsopen(2) and fsmount(2): a stack of frozen layers, with or without an upper
//! directory.
//!
//! A new mount is a descriptor, through which its files can be used. The mount need not be
//! attached to a directory. A mount that was never attached ends when its last descriptor is
//! closed.
//!
//! Limits of these overlays, whatever their [`Features`]:
//! - A descriptor that was opened for reading before the first write to a file keeps showing
//!   the old file, and so does a mapping of it.
//! - An overlay has no file handles (`name_to_handle_at(2)`, export by NFS) and cannot be the
//!   upper file system of another overlay.
//! - In a user namespace the kernel has neither `redirect_dir` (the rename of a lower
//!   directory is `EXDEV`), nor `metacopy` (a change of mode copies the content), nor `index`
//!   (a hard link is broken when it is first written to).
//! - Overlay stores `FS_IMMUTABLE_FL` and `FS_APPEND_FL` in an xattr of the upper file, and reads
//!   the xattr only there. The flags are lost once the upper is a frozen layer ([`freeze()`]).

mod freeze;
mod trial;
mod upper;

pub(crate) use self::freeze::own_times;
pub use self::freeze::{Frozen, freeze};
pub(crate) use self::trial::TRIAL_PREFIX;
pub use self::trial::trial;
pub(crate) use self::upper::is_same_directory;
pub use self::upper::{clear_guard, prepare_upper};

use rustix::fs::{AtFlags, Mode, StatVfsMountFlags, mkdirat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, mount_remount, move_mount, open_tree,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use synconce_durable::error::{Context as _, Error};
use synconce_sys::mounting::{self, Reach};
use synconce_sys::overlay::{OverlayContext, link_to, mounted, place_of};

/// The options of an overlay (Documentation/filesystems/overlayfs.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// `userxattr`: overlay stores its attributes as `user.overlay.*` (Linux 5.11), as
    /// required in a user namespace. Excludes `redirect_dir` and `metacopy`. A layer that was
    /// written with this option must be read with it.
    pub user_xattr: bool,
    /// `index=on`: a file with several hard links stays one file when it is copied up.
    pub index: bool,
    /// `redirect_dir=on`: lower directories can be renamed.
    pub redirect_dir: bool,
    /// `metacopy=on`: a change of mode, owner or xattrs does not copy the content.
    pub metacopy: bool,
    /// `volatile`: the overlay syncs nothing, not even at the unmount (Linux 5.10).
    pub volatile: bool,
}

/// Where an overlay keeps its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrNamespace {
    /// `trusted.overlay.*`.
    Trusted,
    /// `user.overlay.*` ([`Features::user_xattr`]).
    User,
}

impl Features {
    /// All options that help root; `userxattr` would exclude two of them.
    pub const PRIVILEGED: Self =
        Self { user_xattr: false, index: true, redirect_dir: true, metacopy: true, volatile: true };
}

fn set(context: &OverlayContext, features: Features) -> rustix::io::Result<()> {
    for (wanted, name) in [(features.user_xattr, "userxattr"), (features.volatile, "volatile")] {
        if wanted {
            context.flag(name)?;
        }
    }
    for (wanted, name) in [
        (features.index, "index"),
        (features.redirect_dir, "redirect_dir"),
        (features.metacopy, "metacopy"),
    ] {
        if wanted {
            context.set(name, "on")?;
        }
    }
    Ok(())
}

/// A mount, usable through its descriptor, that need not be attached to a directory.
#[derive(Debug)]
pub struct DetachedMount {
    root: OwnedFd,
    /// Whether the mount must still be made read-only when it is attached.
    to_lock: bool,
}

impl AsFd for DetachedMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

impl From<DetachedMount> for OwnedFd {
    fn from(mount: DetachedMount) -> Self {
        mount.root
    }
}

impl DetachedMount {
    /// Attaches the mount to the directory `target`. The mount stays when this value is
    /// dropped.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` in the mount namespace; `EINVAL` if `target` is not in this
    /// namespace, or if the mount is already attached below a shared mount (move_mount(2)).
    pub fn attach(&self, target: BorrowedFd<'_>) -> Result<(), Error> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        let place = place_of(target);
        move_mount(&self.root, "", target, "", flags).on("cannot mount on", &place)?;
        if self.to_lock {
            lock_attached(self.as_fd()).on("cannot make read-only", &place)?;
        }
        Ok(())
    }
}

/// Mounts the directories `lowers`, topmost first, below `upper`, which receives all writes.
/// `work`, an empty directory on the file system of `upper`, is for overlay's own use. The
/// kernel may silently ignore an option that it or the file system does not support: see
/// [`trial()`].
///
/// # Errors
/// The kernel's errors, with its message if there is one: `EINVAL` for an unknown option,
/// `EBUSY` if `upper` is in use, `ESTALE` if `upper` was used with other layers. If the kernel
/// could not write to `work`: the error of that write, or `EBUSY` if it can by now.
pub fn writable(
    lowers: &[BorrowedFd<'_>],
    upper: BorrowedFd<'_>,
    work: BorrowedFd<'_>,
    features: Features,
) -> Result<DetachedMount, Error> {
    let root = mounted(MountAttrFlags::MOUNT_ATTR_NOATIME, |context| {
        context.lowers(lowers)?;
        context.directory("upperdir", upper)?;
        context.directory("workdir", work)?;
        set(context, features)
    });
    let root = root.and_then(|root| is_writable(root.as_fd(), work).map(|()| root));
    let root = root.on("cannot mount an overlay with the upper directory", &place_of(upper))?;
    Ok(DetachedMount { root, to_lock: false })
}

/// Fails if the overlay `root` can only be read. The kernel mounts an overlay read-only if it
/// cannot make a directory in `work`, for example on a full disk, and reports the error only in its
/// log (`ovl_make_workdir`, and with `index` also `ovl_get_indexdir`, in fs/overlayfs/super.c). To
/// find the error, this makes a directory in `work`, too.
fn is_writable(root: BorrowedFd<'_>, work: BorrowedFd<'_>) -> io::Result<()> {
    if !rustix::fs::fstatvfs(root)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    // Not one of the kernel's names, `work` and `index`, which may exist.
    mkdirat(work, "probe", Mode::RWXU)?;
    unlinkat(work, "probe", AtFlags::REMOVEDIR)?;
    // The directory can be made by now, so another mount may succeed.
    Err(Errno::BUSY.into())
}

/// Mounts the directories `lowers`, topmost first, read-only. `xattrs` is where overlay kept its
/// attributes when the layers were written.
///
/// Overlay needs two directories without an upper, so a single one is bind-mounted, without the
/// mounts below it. Before Linux 5.12 the bind mount becomes read-only only when it is attached.
///
/// # Errors
/// The kernel's errors; [`io::ErrorKind::InvalidInput`] without any layer.
pub fn read_only(
    lowers: &[BorrowedFd<'_>],
    xattrs: XattrNamespace,
) -> Result<DetachedMount, Error> {
    let first = lowers.first().map_or_else(PathBuf::new, |first| place_of(*first));
    let mounted = match lowers {
        [] => Err(io::ErrorKind::InvalidInput.into()),
        [only] => bind(*only),
        _ => stack(lowers, xattrs).map(|root| DetachedMount { root, to_lock: false }),
    };
    mounted.on("cannot mount read-only", &first)
}

fn stack(lowers: &[BorrowedFd<'_>], xattrs: XattrNamespace) -> io::Result<OwnedFd> {
    let user_xattr = xattrs == XattrNamespace::User;
    // Without an upper, these options make overlay follow the redirects of writable mounts.
    let followed = !user_xattr;
    let features =
        Features { user_xattr, redirect_dir: followed, metacopy: followed, ..Features::default() };
    let attributes = MountAttrFlags::MOUNT_ATTR_NOATIME | MountAttrFlags::MOUNT_ATTR_RDONLY;
    mounted(attributes, |context| {
        context.lowers(lowers)?;
        set(context, features)
    })
}

/// Bind-mounts the directory `whole`, writable, without the mounts below it.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` in the mount namespace.
pub(crate) fn bind_writable(whole: BorrowedFd<'_>) -> Result<DetachedMount, Error> {
    let root = open_clone(whole).on("cannot mount", &place_of(whole))?;
    Ok(DetachedMount { root, to_lock: false })
}

fn open_clone(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(directory, "", flags)?)
}

fn bind(layer: BorrowedFd<'_>) -> io::Result<DetachedMount> {
    let root = open_clone(layer)?;
    let locked = mounting::leave_access_times(root.as_fd())
        .and_then(|()| mounting::make_read_only(root.as_fd(), Reach::This));
    let to_lock = match locked {
        Err(error) if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => true,
        other => other.map(|()| false)?,
    };
    Ok(DetachedMount { root, to_lock })
}

/// Makes an attached mount read-only, for kernels before Linux 5.12. Repeats the mount's other
/// flags: a remount without them clears them, or fails in a user namespace (mount_namespaces(7)).
pub(crate) fn lock_attached(mount: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let now = rustix::fs::fstatvfs(mount)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (is_set, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        flags.set(flag, now.contains(is_set));
    }
    mount_remount(link_to(mount), flags, "")
}
