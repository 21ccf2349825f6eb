//! Copies owner, mode, extended attributes and times.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, Statx, Timespec, Timestamps, Uid, chmodat, chownat, fchmod, fchown,
    futimens, utimensat,
};
use rustix::io::Errno;

use super::OverlayAttributes;
use crate::owners::why_not_owned;
use crate::xattrs::{Attributed, NamedFile, Open, each_of, is_other_form, is_overlays};
use synconce_sys::namespace::is_first_user_namespace;
use synconce_sys::process::umask;

/// The ids and umask with which this process makes files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Maker {
    uid: u32,
    gid: u32,
    umask: u32,
    /// Overflow uid and gid; None in the initial user namespace.
    nobody: Option<(u32, u32)>,
    overlays: OverlayAttributes,
}

/// An act that failed on the target.
pub(super) type FailedAct = (&'static str, io::Error);

/// All bits of a mode that chmod(2) sets.
const ALL: u32 = 0o7777;

impl Maker {
    pub fn this(overlays: OverlayAttributes) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        // Without it, every mode is set.
        let umask = umask().unwrap_or(0o777);
        Self { uid, gid, umask, nobody: nobody(), overlays }
    }

    /// Returns whether the owner or group may be an unmapped id, which cannot be kept.
    pub(crate) fn may_be_unknown(self, stat: &Statx) -> bool {
        self.nobody.is_some_and(|(uid, gid)| stat.stx_uid == uid || stat.stx_gid == gid)
    }

    /// Returns the mode for making a file, which usually needs no change later. Other users
    /// cannot reach the file: its parent directories are closed until they are finished.
    pub fn mode(self, stat: &Statx) -> Mode {
        Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o777 & !self.umask)
    }

    /// Returns whether the umask preserves the mode 0700 of a new directory.
    pub(crate) fn makes_directories(self) -> bool {
        self.umask & 0o700 == 0
    }

    fn owns(self, stat: &Statx) -> bool {
        (stat.stx_uid, stat.stx_gid) == (self.uid, self.gid)
    }

    /// Returns whether the file's mode must be set: the umask cleared bits, or the mode has
    /// bits that a new file does not get or that a change of owner clears.
    fn needs_mode(self, stat: &Statx) -> bool {
        u32::from(stat.stx_mode) & (0o7000 | self.umask) != 0
    }

    /// Makes this process the owner of a directory and closes it to others. Entries that are
    /// made in it may inherit its group.
    pub fn take(self, directory: &OwnedFd) -> Result<(), FailedAct> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        fchown(directory, Some(uid), Some(gid)).map_err(failed("cannot own"))?;
        for name in [c"system.posix_acl_access", c"system.posix_acl_default"] {
            match rustix::fs::fremovexattr(directory, name) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(("cannot take the access list from", errno.into())),
            }
        }
        fchmod(directory, Mode::RWXU).map_err(failed("cannot set the mode of"))
    }

    /// Gives an empty directory the owner and the mode of another.
    pub fn own(self, directory: &OwnedFd, stat: &Statx) -> Result<(), FailedAct> {
        let (uid, gid) = owner(stat);
        fchown(directory, uid, gid).map_err(|errno| not_owned(stat, errno))?;
        let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & ALL);
        fchmod(directory, mode).map_err(failed("cannot set the mode of"))
    }

    /// Gives the open `target` the attributes of `source`. The order matters: a change of
    /// owner clears set-id bits and capabilities, and each change may change the times.
    pub fn settle(
        self,
        source: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        stat: &Statx,
        made_with: Mode,
    ) -> Result<Whole, FailedAct> {
        if !self.owns(stat) {
            let (uid, gid) = owner(stat);
            fchown(target, uid, gid).map_err(|errno| not_owned(stat, errno))?;
        }
        let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & ALL);
        if made_with != mode || self.needs_mode(stat) {
            fchmod(target, mode).map_err(failed("cannot set the mode of"))?;
        }
        let whole = self.attributes(&Open(source), &Open(target))?;
        futimens(target, &times(stat)).map_err(failed("cannot set the times of"))?;
        Ok(whole)
    }

    /// Like [`Maker::settle`], for files that are not opened: links, devices, pipes, sockets.
    pub(crate) fn settle_at(
        self,
        source: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        name: &CStr,
        stat: &Statx,
        is_link: bool,
    ) -> Result<Whole, FailedAct> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if !self.owns(stat) {
            let (uid, gid) = owner(stat);
            chownat(target, name, uid, gid, flags).map_err(|errno| not_owned(stat, errno))?;
        }
        if !is_link && self.needs_mode(stat) {
            // The entry was just made in a directory that is closed to others, so it is no
            // link.
            let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & ALL);
            chmodat(target, name, mode, AtFlags::empty())
                .map_err(failed("cannot set the mode of"))?;
        }
        let whole = self.attributes(
            &NamedFile::in_directory(source, name.to_bytes()),
            &NamedFile::in_directory(target, name.to_bytes()),
        )?;
        utimensat(target, name, &times(stat), flags).map_err(failed("cannot set the times of"))?;
        Ok(whole)
    }

    fn attributes(
        self,
        source: &impl Attributed,
        target: &impl Attributed,
    ) -> Result<Whole, FailedAct> {
        let mut whole = Whole { permitted: true, of_overlays: true };
        let read = failed("cannot read the extended attributes for");
        let wanted = |name: &CStr| !is_other_form(name);
        each_of(source, wanted, read, |name, value| {
            if self.overlays == OverlayAttributes::LeftOut && is_overlays(name.to_bytes()) {
                whole.of_overlays = false;
                return Ok(());
            }
            match target.set(name, value) {
                // A property that only btrfs has.
                Err(Errno::OPNOTSUPP) if name.to_bytes().starts_with(b"btrfs.") => Ok(()),
                Err(errno) if self.may_not_set(name, errno) => {
                    whole.permitted = false;
                    Ok(())
                }
                result => result.map_err(failed("cannot set an extended attribute of")),
            }
        })?;
        Ok(whole)
    }

    /// Returns whether the user namespace is the reason of `errno`: the access list has an
    /// unmapped id, or only root of the initial namespace may set the attribute.
    fn may_not_set(self, name: &CStr, errno: Errno) -> bool {
        let begins = |prefix: &[u8]| name.to_bytes().starts_with(prefix);
        self.nobody.is_some()
            && match errno {
                Errno::INVAL => begins(b"system.posix_acl_"),
                Errno::PERM => begins(b"security.") || begins(b"trusted."),
                _ => false,
            }
    }
}

/// Whether a file has all of its attributes.
#[must_use]
pub(super) struct Whole {
    /// False if this process may not set one of them.
    pub permitted: bool,
    /// False if attributes of overlays were left out.
    pub of_overlays: bool,
}

/// Returns a function that makes the failure of `act` from its errno.
fn failed(act: &'static str) -> impl Fn(Errno) -> FailedAct {
    move |errno| (act, errno.into())
}

/// Returns the failure of a chown(2) to the owner and group of `stat`.
fn not_owned(stat: &Statx, errno: Errno) -> FailedAct {
    ("cannot set the owner of", why_not_owned(stat.stx_uid, stat.stx_gid, errno))
}

fn owner(stat: &Statx) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(stat.stx_uid)), Some(Gid::from_raw(stat.stx_gid)))
}

fn times(stat: &Statx) -> Timestamps {
    let time = |sec: i64, nsec: u32| Timespec { tv_sec: sec, tv_nsec: nsec.into() };
    Timestamps {
        last_access: time(stat.stx_atime.tv_sec, stat.stx_atime.tv_nsec),
        last_modification: time(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
    }
}

/// Returns the overflow uid and gid (proc_sys_kernel(5)).
fn nobody() -> Option<(u32, u32)> {
    if is_first_user_namespace() {
        return None;
    }
    let read = |path| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    let known = |path| read(path).unwrap_or(65534);
    Some((known("/proc/sys/kernel/overflowuid"), known("/proc/sys/kernel/overflowgid")))
}
