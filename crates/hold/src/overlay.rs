//! The volatile overlay over one held file or directory.
//!
//! A directory is its own upper directory, below an empty lower one, so its data are where they
//! belong and nothing is merged at the unmount. A file is held by a hard link in a directory of
//! its own: the overlay over that directory stays detached, and its file is mounted over the
//! held file. Every sync through the overlay is answered by the kernel (volatile, Linux 5.10).
//! Syncs asked for at open (`O_SYNC`, `O_DSYNC`) and msync(2) are done.
//!
//! After a write-back error on the file system below, every sync through the overlay fails with
//! `EIO` (Documentation/filesystems/overlayfs.rst).

use crate::attributes;
use crate::config::Held;
use crate::directories::DIRECTORY;
use crate::lost;
use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount,
};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::replace::exists;
use synconce_probe::mounts::{self, Mount};
use synconce_sys::overlay::mounted;

/// The directory beside held files in which their overlays have their directories.
pub const SCRATCH: &str = ".synconce-hold";
/// The empty lower directory, on which the overlay is mounted for a moment.
const POINT: &str = "lower";
/// A held path, with links above its last component resolved.
#[derive(Clone, Debug)]
pub struct Place {
    parent: PathBuf,
    name: OsString,
    is_file: bool,
}

impl Place {
    /// Finds the place of `held`.
    ///
    /// # Errors
    /// Names the directory that does not exist or cannot be reached.
    pub fn of(held: &Held) -> Result<Self, Error> {
        let above = held.path.parent().unwrap_or(Path::new("/"));
        Ok(Self {
            parent: above.canonicalize().on("cannot find", above)?,
            name: held.path.file_name().unwrap_or_default().to_owned(),
            is_file: held.kind.is_file(),
        })
    }

    /// Returns the place of `held` in `parent`, which has no links.
    pub fn at(parent: PathBuf, held: &Held) -> Self {
        let name = held.path.file_name().unwrap_or_default().to_owned();
        Self { parent, name, is_file: held.kind.is_file() }
    }

    /// Returns the held path.
    pub fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// Returns the directory that has the held path.
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// Returns the link to the held file below its overlay.
    pub fn below(&self) -> PathBuf {
        self.scratch().join("upper").join(&self.name)
    }

    /// Whether the held path is one file, and not a directory.
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    fn scratch(&self) -> PathBuf {
        self.parent.join(SCRATCH).join(&self.name)
    }

    /// Returns the mount over the held path among `mounts`, in the order of mountinfo.
    pub fn mount<'a>(&self, mounts: &'a [Mount]) -> Option<&'a Mount> {
        let path = self.path();
        let at = mounts.iter().rev().find(|mount| mount.point == path)?;
        is_of_hold(at).then_some(at)
    }

    /// Whether `mount` is a volatile overlay of a hold and its upper directory may be the one of
    /// this place. The kernel shows the path that the directory had, or a link in /proc.
    pub fn may_have(&self, mount: &Mount) -> bool {
        let upper = if self.is_file { self.scratch().join("upper") } else { self.path() };
        let shown = mount.option("upperdir");
        is_of_hold(mount) && shown.is_none_or(|shown| shown == upper || shown.starts_with("/proc"))
    }

    /// Holds the path: mounts the overlay over it.
    ///
    /// # Errors
    /// Names the act and path. The overlay may be mounted then.
    pub fn hold(&self) -> Result<(), Error> {
        let path = self.path();
        self.clean()?;
        let [upper, work, lower] = self.directories()?;
        lost::write_note(self)?;
        let upper = if self.is_file { upper } else { open(&path)? };
        let overlay = mounted(flags_of_mount(&upper).on("cannot look at", &path)?, |context| {
            context.lowers(&[lower.as_fd()])?;
            context.directory("upperdir", upper.as_fd())?;
            context.directory("workdir", work.as_fd())?;
            for name in ["index", "redirect_dir", "metacopy"] {
                context.set(name, "off")?;
            }
            context.flag("volatile")
        });
        let overlay = overlay.on("cannot mount a volatile overlay for", &path)?;
        let mount = if self.is_file {
            self.mount_of_file(&overlay).on("cannot clone the mount for", &path)?
        } else {
            overlay
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::open(&path, flags, Mode::empty()).on("cannot open", &path)?;
        attach(&mount, &target).on("cannot mount on", &path)?;
        self.sync_mark()
    }

    /// Makes the mark of [`Place::is_marked`] durable, with the names that lead to it: a disk that
    /// comes back after its marker was given up must not look as if it never was held.
    fn sync_mark(&self) -> Result<(), Error> {
        let scratch = self.scratch();
        let above = [scratch.clone(), self.parent.join(SCRATCH), self.parent.clone()];
        let below = ["work/work/incompat", "work/work", "work"].map(|name| scratch.join(name));
        for directory in below.iter().chain(&above) {
            rustix::fs::fsync(open(directory)?).on("cannot sync", directory)?;
        }
        Ok(())
    }

    /// Returns a detached mount of the held file in `overlay`.
    fn mount_of_file(&self, overlay: &OwnedFd) -> rustix::io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        match open_tree(overlay, &self.name, flags) {
            Err(Errno::INVAL) => {}
            other => return other,
        }
        // Before Linux 6.15 only a mount that is attached can be cloned.
        let point = self.scratch().join(POINT);
        attach(overlay, rustix::fs::open(&point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)?;
        let mount = open_tree(rustix::fs::CWD, point.join(&self.name), flags);
        unmount(&point, UnmountFlags::DETACH)?;
        mount
    }

    /// Makes the directories of the overlay and, for a file, the link.
    fn directories(&self) -> Result<[OwnedFd; 3], Error> {
        let scratch = self.scratch();
        let of = |name: &str| scratch.join(name);
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700).recursive(true);
        for name in ["upper", "work", POINT] {
            builder.create(of(name)).on("cannot create", &of(name))?;
        }
        if self.is_file {
            let (from, to) = (self.path(), self.below());
            let cwd = rustix::fs::CWD;
            let linked = rustix::fs::linkat(cwd, &from, cwd, &to, AtFlags::empty());
            linked.on("cannot link to", &from)?;
        }
        Ok([open(&of("upper"))?, open(&of("work"))?, open(&of(POINT))?])
    }

    /// Whether a write-back error has occurred since the overlay was mounted: every sync
    /// through the overlay then fails with `EIO`. `false` if this user may not open the path.
    pub fn has_write_back_error(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(self.path(), flags, Mode::empty());
        file.is_ok_and(|file| rustix::fs::fsync(file) == Err(Errno::IO))
    }

    /// Whether an overlay of the held path exists that is not mounted over the path: what
    /// /proc does not show can keep the overlay, such as a descriptor that was sent and not yet
    /// received. The kernel refuses a second overlay with an index and the same upper directory
    /// (`ovl_report_in_use` in fs/overlayfs/super.c). `None` if a directory of the overlay is not
    /// where it belongs.
    ///
    /// # Errors
    /// Names the directory that cannot be opened.
    pub fn is_in_use(&self) -> Result<Option<bool>, Error> {
        let scratch = self.scratch();
        let directories = [scratch.join("upper"), scratch.join("work"), scratch.join(POINT)];
        let upper = if self.is_file { directories[0].clone() } else { self.path() };
        if !directories.iter().all(|path| path.is_dir()) || !upper.is_dir() {
            return Ok(None);
        }
        let [upper, work, lower] = [open(&upper)?, open(&directories[1])?, open(&directories[2])?];
        let second = mounted(MountAttrFlags::empty(), |context| {
            context.lowers(&[lower.as_fd()])?;
            context.directory("upperdir", upper.as_fd())?;
            context.directory("workdir", work.as_fd())?;
            for (name, value) in [("redirect_dir", "off"), ("metacopy", "off"), ("index", "on")] {
                context.set(name, value)?;
            }
            context.flag("volatile")
        });
        // Other errors come after this one: the work directory is of an earlier volatile mount.
        Ok(Some(second.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy)))
    }

    /// Whether a volatile overlay of the path was not ended by a stop: the kernel's mark of such an
    /// overlay is in its work directory (`ovl_create_volatile_dirty` in fs/overlayfs/super.c).
    ///
    /// # Errors
    /// Names the mark that cannot be looked at.
    pub fn is_marked(&self) -> Result<bool, Error> {
        exists(&self.scratch().join("work/work/incompat/volatile"))
    }

    /// Returns the path of the note of [`lost::write_note`].
    pub(crate) fn note(&self) -> PathBuf {
        self.scratch().join("started")
    }

    /// Ends the hold: unmounts the overlay.
    ///
    /// # Errors
    /// `EBUSY` while a process has a file of it open.
    pub fn release(&self) -> io::Result<()> {
        Ok(unmount(self.path(), UnmountFlags::NOFOLLOW)?)
    }

    /// Removes what the hold added: its directories, the link, and the attributes on the
    /// directories of a held directory. The overlay must not be mounted.
    ///
    /// # Errors
    /// Names the act and path.
    pub fn clean(&self) -> Result<(), Error> {
        let (scratch, above) = (self.scratch(), self.parent.join(SCRATCH));
        // After a power cut a part of the directories may be missing.
        if !exists(&above)? {
            return Ok(());
        }
        // The daemon's user may have made a link there. What it leads to is not of the hold.
        open(&above)?;
        if exists(&scratch)? {
            open(&scratch)?;
            // A start that was killed may have left its overlay there.
            match unmount(scratch.join(POINT), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                Err(Errno::INVAL | Errno::NOENT) => {}
                other => other.on("cannot unmount", &scratch.join(POINT))?,
            }
            // Before the mark is removed, which shows that an overlay of a hold was mounted. Without
            // the mark the attributes are not of the hold.
            if !self.is_file && self.is_marked()? && self.path().is_dir() {
                attributes::restore(&self.path())?;
            }
            fs::remove_dir_all(&scratch).on("cannot remove", &scratch)?;
        }
        match fs::remove_dir(&above) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            other => other.on("cannot remove", &above),
        }
    }
}

/// Removes what a hold that a crash ended has added at `places`, durably: the mark of
/// [`Place::is_marked`] must not come back after the marker is removed.
///
/// # Errors
/// Names the act and path.
pub fn clean(places: &[Place]) -> Result<(), Error> {
    for place in places {
        // On a file system that was made anew there may be no such directory.
        if !exists(&place.parent)? {
            continue;
        }
        place.clean()?;
        let scratch = place.parent.join(SCRATCH);
        let changed = if exists(&scratch)? { scratch } else { place.parent.clone() };
        rustix::fs::fsync(open(&changed)?).on("cannot sync", &changed)?;
    }
    Ok(())
}

/// Returns the attributes of the mount that `directory` is on, which the overlay gets, too.
fn flags_of_mount(directory: &OwnedFd) -> rustix::io::Result<MountAttrFlags> {
    let flags = rustix::fs::fstatvfs(directory)?.f_flag;
    let mut attributes = MountAttrFlags::empty();
    for (flag, attribute) in [
        (StatVfsMountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (StatVfsMountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (StatVfsMountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (StatVfsMountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ] {
        attributes.set(attribute, flags.contains(flag));
    }
    // Three values of one field (mount_setattr(2)); relatime is the one without bits.
    Ok(attributes
        | match () {
            () if flags.contains(StatVfsMountFlags::NOATIME) => MountAttrFlags::MOUNT_ATTR_NOATIME,
            () if flags.contains(StatVfsMountFlags::RELATIME) => MountAttrFlags::empty(),
            () => MountAttrFlags::MOUNT_ATTR_STRICTATIME,
        })
}

/// Whether `mount` is a volatile overlay of a hold.
pub fn is_of_hold(mount: &Mount) -> bool {
    let is_volatile = mount.has_option("volatile") || mount.has_option("fsync=volatile");
    // The source that every overlay of `sys::overlay` has.
    mount.type_name == "overlay" && mount.source == "synconce" && is_volatile
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
pub fn refuse_held(places: &[Place]) -> Result<(), Error> {
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

fn open(directory: &Path) -> Result<OwnedFd, Error> {
    rustix::fs::open(directory, DIRECTORY, Mode::empty()).on("cannot open", directory)
}
