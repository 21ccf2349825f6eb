//! The upper and work directories of a writable overlay.

use rustix::fs::{
    AtFlags, CWD, Gid, IFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
    chmod, chown, ioctl_getflags, ioctl_setflags, openat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use synconce_durable::error::{Context, Error};
use synconce_fs::{shows_overlay_attributes, xattrs};
use synconce_sys::overlay::{link_to, place_of};

/// Gives the new and empty `upper` the mode, owner, xattrs, flags and times of `top`, the root of
/// the topmost lower layer: the merged root shows the attributes of the upper.
///
/// # Errors
/// The errors of chmod(2), chown(2), setxattr(2), ioctl_iflags(2) and utimensat(2). A `security.*`
/// attribute that setxattr(2) refuses is left out, and so are flags that the kernel refuses.
pub fn prepare_upper(upper: BorrowedFd<'_>, top: BorrowedFd<'_>) -> Result<(), Error> {
    copy_metadata(upper, top).on("cannot prepare the upper directory", &place_of(upper))
}

fn copy_metadata(upper: BorrowedFd<'_>, top: BorrowedFd<'_>) -> io::Result<()> {
    let wanted = rustix::fs::fstat(top)?;
    // Unlike calls on descriptors, calls on this path work for O_PATH descriptors.
    let link = link_to(upper);
    chown(&*link, Some(Uid::from_raw(wanted.st_uid)), Some(Gid::from_raw(wanted.st_gid)))?;
    // After the owner: a change of owner clears set-id bits.
    chmod(&*link, Mode::from_raw_mode(wanted.st_mode))?;
    copy_xattrs(&link, top)?;
    copy_flags(upper, top)?;
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: wanted.st_mtime, tv_nsec: wanted.st_mtime_nsec as _ },
    };
    Ok(utimensat(CWD, &*link, &times, AtFlags::empty())?)
}

fn copy_xattrs(to: &str, from: BorrowedFd<'_>) -> io::Result<()> {
    for (name, value) in xattrs(from)? {
        match rustix::fs::setxattr(to, &*name, &value, XattrFlags::empty()) {
            Err(Errno::PERM | Errno::OPNOTSUPP) if name.to_bytes().starts_with(b"security.") => {}
            other => other?,
        }
    }
    Ok(())
}

/// Returns whether a directory in the upper of an unmounted overlay shows what the directory
/// `below` shows: both have the same attributes, and nothing below is hidden.
///
/// # Errors
/// The errors of fstat(2), openat(2) and listxattr(2).
pub(crate) fn is_same_directory(
    upper: BorrowedFd<'_>,
    below: BorrowedFd<'_>,
) -> Result<bool, Error> {
    let same = same_metadata(upper, below);
    same.on("cannot compare the upper directory", &place_of(upper))
}

fn same_metadata(upper: BorrowedFd<'_>, below: BorrowedFd<'_>) -> io::Result<bool> {
    let (a, b) = (rustix::fs::fstat(upper)?, rustix::fs::fstat(below)?);
    let of = |s: &rustix::fs::Stat| (s.st_mode, s.st_uid, s.st_gid, s.st_mtime, s.st_mtime_nsec);
    Ok(of(&a) == of(&b)
        && xattrs(upper)? == xattrs(below)?
        && flags(upper)? == flags(below)?
        // `below` shows such an attribute without the escape: a removal of it would go unseen.
        && !shows_overlay_attributes(below)?
        && !hides(upper)?)
}

/// The flags that chattr(1) sets on a directory and a frozen layer keeps. Of the others, a file
/// system sets some itself. `PROJECT_INHERIT` belongs to the project quota of the store: a copy of
/// the flag of an older layer would take new files out of the quota.
const SETTABLE: IFlags = IFlags::COMPRESSED
    .union(IFlags::DIRSYNC)
    .union(IFlags::JOURNALING)
    .union(IFlags::NOATIME)
    .union(IFlags::NOCOW)
    .union(IFlags::NODUMP)
    .union(IFlags::SYNC)
    .union(IFlags::TOPDIR);

/// Returns the [`SETTABLE`] flags of `directory`; none if the file system has no flags.
fn flags(directory: BorrowedFd<'_>) -> io::Result<IFlags> {
    let flags = ioctl_getflags(for_ioctl(directory)?);
    Ok(flags.map_or(IFlags::empty(), |flags| flags & SETTABLE))
}

fn copy_flags(to: BorrowedFd<'_>, from: BorrowedFd<'_>) -> io::Result<()> {
    let (wanted, there) = (flags(from)?, flags(to)?);
    if wanted == there {
        return Ok(());
    }
    let to = for_ioctl(to)?;
    let others = ioctl_getflags(&to)? - SETTABLE;
    match ioctl_setflags(&to, others | wanted) {
        // The flags may not go together with those of the store's directory.
        Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        set => Ok(set?),
    }
}

/// Opens `directory` anew: the root of a detached mount is an `O_PATH` descriptor, which ioctl(2)
/// refuses.
fn for_ioctl(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(directory, ".", flags, Mode::empty())?)
}

/// Returns whether the upper directory hides the content of the directory below, or shows the
/// content of another one (Documentation/filesystems/overlayfs.rst).
fn hides(upper: BorrowedFd<'_>) -> io::Result<bool> {
    for name in ["trusted", "user"]
        .iter()
        .flat_map(|space| ["opaque", "redirect"].map(|name| format!("{space}.overlay.{name}")))
    {
        match rustix::fs::getxattr(&*link_to(upper), &*name, &mut [0_u8; 0][..]) {
            Ok(_) => return Ok(true),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(false)
}

/// Removes the guard by which the kernel refuses to mount an upper directory again after a
/// volatile mount (`work/incompat/volatile` in the work directory). Only safe if the overlay
/// was unmounted and the machine has not crashed since.
///
/// # Errors
/// The errors of unlinkat(2). A missing guard is no error.
pub fn clear_guard(work: BorrowedFd<'_>) -> Result<(), Error> {
    remove_guard(work).on("cannot clear the guard of", &place_of(work))
}

fn remove_guard(work: BorrowedFd<'_>) -> io::Result<()> {
    let steps = [
        ("work/incompat/volatile/dirty", AtFlags::empty()),
        ("work/incompat/volatile", AtFlags::REMOVEDIR),
        ("work/incompat", AtFlags::REMOVEDIR),
    ];
    for (path, flags) in steps {
        match unlinkat(work, path, flags) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
