//! The volatile overlay over one held file or directory.
//!
//! A directory is its own upper directory, below an empty lower one, so its data are where they
//! belong and nothing is merged at the unmount. A file is held by a hard link in a directory of
//! its own: the overlay over that directory stays detached, and its file is mounted over the
//! held file. Every sync through the overlay is answered by the kernel (volatile, Linux 5.10).
//! Syncs asked for at open (`O_SYNC`, `O_DSYNC`) and msync(2) are done.
//!
//! After a write-back error on the file system below, every sync through the overlay fails
//! (Documentation/filesystems/overlayfs.rst).

mod clean;
mod own;
mod take_back;

pub use self::clean::{clean, restore_attributes, sync};

use crate::note;
use crate::resolved_path::{ResolvedPath, UPPER};
use crate::safe_directory::{Astray, SCRATCH, SafeDirectory, is_same, type_of};
use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount,
};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_probe::mounts::{self, Mount};
use synconce_sys::overlay::mounted;

const WORK: &str = "work";
/// The empty lower directory, on which the overlay is mounted for a moment.
const POINT: &str = "lower";

impl ResolvedPath {
    /// Holds the path: mounts the overlay over it. The overlay stays read-only until no process can
    /// have a file below it open. Such a process and the daemon would not see each other's locks.
    ///
    /// # Errors
    /// Names the act and path. The overlay may be mounted then.
    pub fn hold(&self) -> Result<(), Error> {
        let path = self.path();
        let parent = self.open_parent()?;
        self.clean_in(&parent)?;
        let (all, scratch) = parent.make_below(OsStr::new(SCRATCH), self.name())?;
        let [upper, work, lower] = [UPPER, WORK, POINT].map(|name| scratch.make(OsStr::new(name)));
        let (upper, work, lower) = (upper?, work?, lower?);
        note::write(self, &scratch)?;
        // From here on the open file is used, because another file can get its name.
        let target = parent.open_file(self.name(), OFlags::PATH)?;
        let top = if self.is_file() {
            self.link_in(&upper, &parent, &target)?
        } else {
            self.open_same(&parent, &target)?
        };
        let overlay = mounted(flags_of_mount(&top).on("cannot look at", &path)?, |context| {
            context.lowers(&[lower.as_fd()])?;
            context.directory("upperdir", top.as_fd())?;
            context.directory("workdir", work.as_fd())?;
            for name in ["index", "redirect_dir", "metacopy"] {
                context.set(name, "off")?;
            }
            context.flag("ro")?;
            context.flag("volatile")
        });
        let overlay = overlay.on("cannot mount a volatile overlay for", &path)?;
        let mount = if self.is_file() {
            let mount = self.mount_of_file(&scratch, &overlay);
            mount.on("cannot clone the mount for", &path)?
        } else {
            overlay
        };
        attach(&mount, &target).on("cannot mount on", &path)?;
        if mutant::is("hold-mark-unsynced") {
            return Ok(());
        }
        sync_mark(&scratch, &work)?;
        all.sync()?;
        parent.sync()
    }

    /// Links the held file, which is `target`, in `upper`. Returns `upper`.
    fn link_in(
        &self,
        upper: &SafeDirectory,
        parent: &SafeDirectory,
        target: &OwnedFd,
    ) -> Result<OwnedFd, Error> {
        let (path, name) = (self.path(), self.name());
        let linked = rustix::fs::linkat(parent, name, upper, name, AtFlags::empty());
        linked.on("cannot link to", &path)?;
        let target = rustix::fs::fstat(target).on("cannot look at", &path)?;
        let is_it = upper.look(name)?.is_some_and(|link| is_same(&link, &target));
        if is_it && type_of(&target).is_file() {
            upper.readable()
        } else {
            Err(Astray::Replaced.on(&path))
        }
    }

    /// Opens the held directory, which is `target`, as an upper directory.
    fn open_same(&self, parent: &SafeDirectory, target: &OwnedFd) -> Result<OwnedFd, Error> {
        let path = self.path();
        let opened = parent.open_directory(self.name())?;
        let stat = |file: &OwnedFd| rustix::fs::fstat(file).on("cannot look at", &path);
        if is_same(&stat(&opened)?, &stat(target)?) {
            Ok(opened)
        } else {
            Err(Astray::Replaced.on(&path))
        }
    }

    /// Returns a detached mount of the held file in `overlay`.
    fn mount_of_file(
        &self,
        scratch: &SafeDirectory,
        overlay: &OwnedFd,
    ) -> rustix::io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
        match open_tree(overlay, self.name(), flags) {
            Err(Errno::INVAL) => {}
            other => return other,
        }
        // Before Linux 6.15 only a mount that is attached can be cloned.
        let point = scratch.path_to(OsStr::new(POINT));
        attach(overlay, rustix::fs::open(&point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)?;
        let mount = open_tree(rustix::fs::CWD, point.join(self.name()), flags);
        unmount(&point, UnmountFlags::DETACH)?;
        mount
    }

    /// Whether a write-back error has occurred since the overlay was mounted: every sync through
    /// the overlay then fails with the error's errno, such as `EIO` or `ENOSPC` (`ovl_sync_status`
    /// in fs/overlayfs/super.c). A file system that was shut down opens no file (`EIO`).
    ///
    /// # Errors
    /// Names the path that cannot be opened for another reason: nothing is known of it.
    pub fn has_write_back_error(&self) -> Result<bool, Error> {
        match self.open_parent()?.open_file(self.name(), OFlags::RDONLY) {
            Ok(file) => Ok(rustix::fs::fsync(file).is_err()),
            Err(error) if error.io().raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether an overlay of the held path still exists, although it is not mounted over the path.
    /// Users that /proc does not show can keep the overlay, such as a descriptor in flight in a
    /// socket. The kernel refuses a second overlay with an index and the same work directory
    /// (`ovl_report_in_use` in fs/overlayfs/super.c). `None` if a directory of the overlay is not
    /// where it belongs, or is not the one of the hold.
    ///
    /// # Errors
    /// Names the directory that cannot be opened, or the path for which the kernel gives no answer.
    pub fn is_in_use(&self) -> Result<Option<bool>, Error> {
        let Some(scratch) = self.scratch()? else { return Ok(None) };
        // The mount below writes to the directories.
        if !note::is_noted(&scratch)? {
            return Ok(None);
        }
        let mut found = Vec::new();
        for name in [UPPER, WORK, POINT] {
            let Some(directory) = scratch.inner(OsStr::new(name))? else { return Ok(None) };
            found.push(directory.readable()?);
        }
        // The work directory decides. A held directory is also the upper directory of a copy that
        // an earlier stop left read-only, so an empty directory takes its place here.
        let [upper, work, lower] = &found[..] else { return Ok(None) };
        let second = mounted(MountAttrFlags::empty(), |context| {
            context.lowers(&[lower.as_fd()])?;
            context.directory("upperdir", upper.as_fd())?;
            context.directory("workdir", work.as_fd())?;
            for (name, value) in [("redirect_dir", "off"), ("metacopy", "off"), ("index", "on")] {
                context.set(name, value)?;
            }
            context.flag("volatile")
        });
        match second {
            Ok(_) => Ok(Some(false)),
            Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(Some(true)),
            Err(error) if is_of_free_directories(&error) => Ok(Some(false)),
            // Such as EPERM without CAP_SYS_ADMIN, or ENOMEM.
            other => {
                other.map(|_| None).on("cannot ask the kernel for an overlay of", &self.path())
            }
        }
    }

    /// Whether no stop has ended the last volatile overlay of the path: the kernel's mark is still
    /// in the overlay's work directory (`ovl_create_volatile_dirty` in fs/overlayfs/super.c).
    ///
    /// # Errors
    /// Names the mark that cannot be looked at.
    pub fn is_marked(&self) -> Result<bool, Error> {
        let Some(scratch) = self.scratch()? else { return Ok(false) };
        has_mark(&scratch)
    }

    /// Ends the hold: unmounts the overlay, which is `mount`.
    ///
    /// # Errors
    /// `EBUSY` while a process has a file of it open.
    pub fn release(&self, mount: &Mount) -> Result<(), Error> {
        let (_parent, point) = self.mount_point(mount)?;
        unmount(point, UnmountFlags::NOFOLLOW).on("cannot unmount", &self.path())
    }

    /// Returns a path to `mount`, which covers the held path. The path is valid while the returned
    /// directory is open.
    ///
    /// # Errors
    /// [`Astray::Replaced`] if another mount is there.
    pub(crate) fn mount_point(&self, mount: &Mount) -> Result<(SafeDirectory, PathBuf), Error> {
        let parent = self.open_parent()?;
        // A directory above may be another by now. A name that has a mount cannot be renamed.
        if parent.mount_of(self.name())? != mount.id {
            return Err(Astray::Replaced.on(&self.path()));
        }
        let point = parent.path_to(self.name());
        Ok((parent, point))
    }
}

/// Whether `error` of a second overlay says that no overlay has its directories. The kernel returns
/// these errors after `EBUSY`: `EINVAL` because the work directory is of an earlier volatile mount,
/// `ESTALE` because its index is of another upper directory, the others because it cannot make a
/// directory there. `ENODEV`: the kernel has no overlayfs.
fn is_of_free_directories(error: &io::Error) -> bool {
    use ErrorKind::{
        InvalidInput, QuotaExceeded, ReadOnlyFilesystem, StaleNetworkFileHandle, StorageFull,
    };
    let is_late = matches!(
        error.kind(),
        InvalidInput | StaleNetworkFileHandle | StorageFull | QuotaExceeded | ReadOnlyFilesystem
    );
    is_late || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// The flag of statvfs(2) of a mount that follows no links (`ST_NOSYMFOLLOW`, Linux 5.10). Before
/// Linux 5.14 fsmount(2) does not know the attribute, and the start fails.
const NOSYMFOLLOW: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(0x2000);

/// Returns the attributes of the mount that `directory` is on, which the overlay gets, too.
fn flags_of_mount(directory: &OwnedFd) -> rustix::io::Result<MountAttrFlags> {
    let flags = rustix::fs::fstatvfs(directory)?.f_flag;
    let mut attributes = MountAttrFlags::empty();
    for (flag, attribute) in [
        (StatVfsMountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (StatVfsMountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (StatVfsMountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (StatVfsMountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
        (NOSYMFOLLOW, MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
    ] {
        attributes.set(attribute, flags.contains(flag));
    }
    // Three values of one field (mount_setattr(2)); relatime is the one without bits.
    Ok(attributes
        | if flags.contains(StatVfsMountFlags::NOATIME) {
            MountAttrFlags::MOUNT_ATTR_NOATIME
        } else if flags.contains(StatVfsMountFlags::RELATIME) {
            MountAttrFlags::empty()
        } else {
            MountAttrFlags::MOUNT_ATTR_STRICTATIME
        })
}

/// Mounts the detached `mount` over `target`.
fn attach(mount: impl AsFd, target: impl AsFd) -> rustix::io::Result<()> {
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", target, "", both)
}

/// Fails if one of `places` is held, so that its files cannot be recovered.
///
/// # Errors
/// `EBUSY` for a path that is held; otherwise names the file that cannot be read.
pub fn refuse_held(places: &[ResolvedPath]) -> Result<(), Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    for place in places {
        if place.mount(&mounts).is_some() {
            return Err(Error::new(
                "cannot recover, while it is held,",
                &place.path(),
                Errno::BUSY,
            ));
        }
    }
    Ok(())
}

/// Whether the mark of [`ResolvedPath::is_marked`] is in `scratch`.
fn has_mark(scratch: &SafeDirectory) -> Result<bool, Error> {
    // What is in a directory of root alone is no link.
    Ok(scratch.look(OsStr::new("work/work/incompat/volatile"))?.is_some())
}

/// Makes the mark of [`ResolvedPath::is_marked`] durable, with the names that lead to the mark. So
/// a disk that was away while its marker was removed still shows that its files were held. The
/// caller then syncs the directories above.
fn sync_mark(scratch: &SafeDirectory, work: &SafeDirectory) -> Result<(), Error> {
    for name in ["work/incompat", "work"] {
        let directory = work.open_directory(OsStr::new(name))?;
        rustix::fs::fsync(directory).on("cannot sync", &work.path().join(name))?;
    }
    work.sync()?;
    scratch.sync()
}
