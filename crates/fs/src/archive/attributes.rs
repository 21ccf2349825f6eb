//! Reads and sets owners, modes, extended attributes and times.

use std::convert::identity;
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;

use rustix::fs::{
    AtFlags, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, chmodat, chownat, fchmod,
    fchown, futimens, utimensat,
};
use rustix::io::Errno;
use synconce_durable::error::{Context, Error};

use super::member::{Attributes, Xattr};
use super::{LeftOut, as_path, failed};
use crate::owners::why_not_owned;
use crate::xattrs::{Attributed, NamedFile, Open, each_of, is_overlays};
use synconce_sys::reason;

/// A file, by descriptor or by its name in a directory.
#[derive(Clone, Copy)]
pub(super) enum File<'a> {
    Open(BorrowedFd<'a>),
    /// A file that is no symbolic link: `chmod` would follow a link.
    Named(BorrowedFd<'a>, &'a [u8]),
    /// A symbolic link, which has no mode.
    Link(BorrowedFd<'a>, &'a [u8]),
}

impl File<'_> {
    fn chown(self, uid: u32, gid: u32) -> Result<(), Errno> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        match self {
            Self::Open(file) => fchown(file, uid, gid),
            Self::Named(dir, name) | Self::Link(dir, name) => {
                chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    fn chmod(self, mode: u32) -> Result<(), Errno> {
        match self {
            Self::Open(file) => fchmod(file, Mode::from_raw_mode(mode)),
            Self::Named(dir, name) => {
                chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())
            }
            Self::Link(..) => Ok(()),
        }
    }

    /// Sets the time of last modification, in seconds since 1970 and nanoseconds.
    fn set_mtime(self, (seconds, nanoseconds): (i64, u32)) -> Result<(), Errno> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
        };
        match self {
            Self::Open(file) => futimens(file, &times),
            Self::Named(dir, name) | Self::Link(dir, name) => {
                utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    fn set_xattr(self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(file) => Open(file).set(name, value),
            Self::Named(dir, file) | Self::Link(dir, file) => {
                NamedFile::in_directory(dir, file).set(name, value)
            }
        }
    }

    /// Returns the extended attributes, sorted by name.
    pub(super) fn xattrs(self) -> Result<Vec<Xattr>, Errno> {
        let mut xattrs = Vec::new();
        let tell = |name: &CStr, value: &[u8]| {
            xattrs.push((name.to_bytes().to_vec(), value.to_vec()));
            Ok(())
        };
        match self {
            Self::Open(file) => each_of(&Open(file), |_| true, identity, tell)?,
            Self::Named(dir, file) | Self::Link(dir, file) => {
                each_of(&NamedFile::in_directory(dir, file), |_| true, identity, tell)?;
            }
        }
        xattrs.sort_unstable();
        Ok(xattrs)
    }
}

/// Sets the attributes `wanted` of a new file, which has the attributes `is`. No step undoes an
/// earlier one: chown(2) clears set-id bits and capabilities, and chmod(2) changes the mask of an
/// access list. Notes in `left_out` the extended attributes that the kernel refuses.
///
/// # Errors
/// Names the act and `path`.
pub(super) fn apply(
    file: File<'_>,
    is: &Stat,
    path: &[u8],
    wanted: &Attributes,
    left_out: &mut LeftOut,
) -> Result<(), Error> {
    let other_owner = (is.st_uid, is.st_gid) != (wanted.uid, wanted.gid);
    if other_owner {
        file.chown(wanted.uid, wanted.gid).map_err(|errno| {
            let why = why_not_owned(wanted.uid, wanted.gid, errno);
            failed("cannot set the owner of", path, why)
        })?;
    }
    let mut set = |stage: u8| {
        for (name, value) in wanted.xattrs.iter().filter(|(name, _)| stage_of(name) == stage) {
            set_xattr(file, path, name, value, left_out)?;
        }
        Ok(())
    };
    set(0)?;
    // chown(2) may have cleared bits of the right mode.
    if is.st_mode & 0o7777 != wanted.mode || other_owner {
        file.chmod(wanted.mode).on("cannot set the mode of", as_path(path))?;
    }
    set(1)?;
    set(2)?;
    file.set_mtime(wanted.mtime).on("cannot set the time of", as_path(path))
}

/// Returns when `apply` sets an extended attribute: 0 is before chmod(2), 1 and 2 are after it.
fn stage_of(xattr: &[u8]) -> u8 {
    match xattr {
        _ if xattr.starts_with(b"system.posix_acl_") => 1,
        _ if xattr.starts_with(b"security.") => 2,
        _ => 0,
    }
}

fn set_xattr(
    file: File<'_>,
    path: &[u8],
    name: &[u8],
    value: &[u8],
    left_out: &mut LeftOut,
) -> Result<(), Error> {
    let note = |why: &str| format!("the attribute {}: {why}", name.escape_ascii());
    if is_overlays(name) {
        left_out.note(path, note("it would direct an overlay"));
        return Ok(());
    }
    let c_name = CString::new(name).map_err(|_| Errno::INVAL);
    match c_name.and_then(|name| file.set_xattr(&name, value)) {
        // The access list has an id that is not mapped in the user namespace.
        Err(errno @ Errno::INVAL) if name.starts_with(b"system.posix_acl_") => {
            left_out.note(path, note(&reason(&errno.into())));
            Ok(())
        }
        Err(errno @ (Errno::PERM | Errno::OPNOTSUPP | Errno::ACCESS)) => {
            left_out.note(path, note(&reason(&errno.into())));
            Ok(())
        }
        result => result.map_err(|errno| {
            let why = std::io::Error::other(note(&reason(&errno.into())));
            failed("cannot set an attribute of", path, why)
        }),
    }
}
