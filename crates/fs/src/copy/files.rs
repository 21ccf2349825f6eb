//! Copies an entry that is no directory.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Statx, StatxAttributes, linkat, makedev, mknodat, openat,
    readlinkat_raw, symlinkat,
};
use rustix::io::Errno;

use super::below;
use super::content::NotCopied;
use super::links::{Claim, Making};
use super::visit::{CopiedDirectory, CopyThread, Copying, TargetDirectory, has_changed};
use crate::walk::directory::{Mounts, kind_of, look, look_at};
use crate::{Error, grow};

/// A path length that the kernel accepts; PATH_MAX is 4096 with the NUL.
const PATH: usize = 4000;

/// The longest target of a symbolic link (`PATH_MAX`).
const TARGET: usize = 4096;

impl Copying<'_> {
    /// Copies the entry `name`. Returns whether the entry is a directory, which is not copied
    /// here.
    pub fn file(
        &self,
        at: &CopiedDirectory<'_, '_>,
        own: &mut CopyThread<'_>,
        name: &CStr,
        kind: FileType,
    ) -> Result<bool, Error> {
        if kind == FileType::RegularFile {
            self.regular(at, own, name)
        } else {
            self.other(at, own, name)
        }
    }

    fn regular(
        &self,
        at: &CopiedDirectory<'_, '_>,
        own: &mut CopyThread<'_>,
        name: &CStr,
    ) -> Result<bool, Error> {
        let fail = |act| move |errno| self.source_error(act, &at.node.path_to(name), errno);
        let source = match self.mounts.file(at.pair.first(), name) {
            Ok(source) => source,
            Err(Errno::XDEV) => return self.pass_by(at, own, name).map(|()| false),
            // The file is gone, or was replaced by a link or a socket.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => {
                Self::changed(at, own, name);
                return self.other(at, own, name);
            }
            Err(Errno::ACCESS) if self.skips(at, own, name) => return Ok(false),
            Err(errno) => return Err(fail("cannot open")(errno)),
        };
        let stat = look_at(&source).map_err(fail("cannot look at"))?;
        if kind_of(&stat) != FileType::RegularFile {
            Self::changed(at, own, name);
            drop(source);
            return self.other(at, own, name);
        }
        let Ok(making) = self.claim(at, name, &stat)? else { return Ok(false) };
        self.note(at, own, name, &stat);
        self.content_of(at, own, name, source.as_fd(), &stat, making)?;
        Ok(false)
    }

    /// Links a file with several names to its first copy. Otherwise returns `Ok`, and the
    /// caller makes the copy.
    fn claim(
        &self,
        at: &CopiedDirectory<'_, '_>,
        name: &CStr,
        stat: &Statx,
    ) -> Result<Result<Option<Making<'_, Statx>>, ()>, Error> {
        if stat.stx_nlink < 2 {
            return Ok(Ok(None));
        }
        match self.links.claim(stat) {
            Claim::First(making) => Ok(Ok(Some(making))),
            Claim::Made(node, first) => {
                self.link_to(at, name, &node, &first).map(Err).map_err(|errno| {
                    self.target_error("cannot make the link", &at.node.path_to(name), errno)
                })
            }
        }
    }

    fn link_to(
        &self,
        at: &CopiedDirectory<'_, '_>,
        name: &CStr,
        node: &Arc<TargetDirectory>,
        first: &CStr,
    ) -> Result<(), Errno> {
        let (here, none) = (at.pair.second(), AtFlags::empty());
        if Arc::ptr_eq(node, at.node) {
            return linkat(here, first, here, name, none);
        }
        let path = node.path_to(first);
        if path.len() < PATH {
            return linkat(self.root.second(), &path[..], here, name, none);
        }
        let directory = node.open_target(self.root)?;
        linkat(directory, first, here, name, none)
    }

    fn content_of(
        &self,
        at: &CopiedDirectory<'_, '_>,
        own: &mut CopyThread<'_>,
        name: &CStr,
        source: std::os::fd::BorrowedFd<'_>,
        stat: &Statx,
        making: Option<Making<'_, Statx>>,
    ) -> Result<(), Error> {
        let fail = |act| move |errno| self.target_error(act, &at.node.path_to(name), errno);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = self.maker.mode(stat);
        let target = openat(at.pair.second(), name, flags | OFlags::CLOEXEC, mode)
            .map_err(fail("cannot create"))?;
        if let Some(making) = making {
            making.made(at.node, name);
        }
        let copied =
            self.content.copy(source, target.as_fd(), stat, &mut own.buffer, &mut own.tally);
        match copied {
            Ok(shared) => own.report.reflinked += u64::from(shared),
            Err(NotCopied::Cancelled(error)) => return Err(error),
            Err(NotCopied::Writing(errno)) => return Err(fail("cannot write")(errno)),
            Err(NotCopied::Sharing(errno)) => {
                return Err(fail("cannot share the content (FICLONE) with")(errno));
            }
            Err(NotCopied::Reading(errno)) => {
                return Err(self.source_error("cannot read", &at.node.path_to(name), errno));
            }
        }
        let settled = self.maker.settle(source, target.as_fd(), stat, mode);
        let settled =
            settled.map_err(|(act, why)| self.target_error(act, &at.node.path_to(name), why))?;
        Self::settled(at, own, name, &settled);
        let now = look_at(source)
            .map_err(|errno| self.source_error("cannot look at", &at.node.path_to(name), errno))?;
        // A change of the link count alone also changes the ctime, although nothing that is
        // copied has changed. The ctime alone cannot distinguish the two cases.
        if has_changed(stat, &now) {
            Self::changed(at, own, name);
        }
        Ok(())
    }

    /// Copies `name`, of any kind. Returns true for a directory, which is not copied.
    fn other(
        &self,
        at: &CopiedDirectory<'_, '_>,
        own: &mut CopyThread<'_>,
        name: &CStr,
    ) -> Result<bool, Error> {
        let fail = |act| move |errno| self.source_error(act, &at.node.path_to(name), errno);
        let stat = match look(at.pair.first(), name) {
            Err(Errno::NOENT) => {
                Self::changed(at, own, name);
                return Ok(false);
            }
            // A directory that can be listed and not searched, or another user's FUSE file system.
            Err(Errno::ACCESS) if self.skips(at, own, name) => return Ok(false),
            stat => stat.map_err(fail("cannot look at"))?,
        };
        let kind = kind_of(&stat);
        if kind == FileType::Directory {
            return Ok(true);
        }
        if self.mounts == Mounts::Stop && stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        {
            return self.pass_by(at, own, name).map(|()| false);
        }
        if kind == FileType::RegularFile {
            return self.regular(at, own, name);
        }
        let Ok(making) = self.claim(at, name, &stat)? else { return Ok(false) };
        if !self.special(at, own, name, &stat, kind)? {
            return Ok(false);
        }
        self.note(at, own, name, &stat);
        if let Some(making) = making {
            making.made(at.node, name);
        }
        let is_link = kind == FileType::Symlink;
        let settled = self
            .maker
            .settle_at(at.pair.first(), at.pair.second(), name, &stat, is_link)
            .map_err(|(act, why)| self.target_error(act, &at.node.path_to(name), why))?;
        Self::settled(at, own, name, &settled);
        Ok(false)
    }

    /// Makes a link, a device, a pipe or a socket. Returns whether it was made.
    fn special(
        &self,
        at: &CopiedDirectory<'_, '_>,
        own: &mut CopyThread<'_>,
        name: &CStr,
        stat: &Statx,
        kind: FileType,
    ) -> Result<bool, Error> {
        let made = if kind == FileType::Symlink {
            grow(&mut own.buffer, TARGET);
            let length = match readlinkat_raw(at.pair.first(), name, &mut own.buffer[..]) {
                Err(Errno::NOENT | Errno::INVAL) => {
                    Self::changed(at, own, name);
                    return Ok(false);
                }
                length => length.map_err(|errno| {
                    self.source_error("cannot read the link", &at.node.path_to(name), errno)
                })?,
            };
            symlinkat(&own.buffer[..length], at.pair.second(), name)
        } else {
            return self.node(at, own, name, stat, kind);
        };
        made.map(|()| true)
            .map_err(|errno| self.target_error("cannot create", &at.node.path_to(name), errno))
    }

    /// Makes a device, a pipe or a socket. Returns false if this process may not make devices.
    fn node(
        &self,
        at: &CopiedDirectory<'_, '_>,
        own: &mut CopyThread<'_>,
        name: &CStr,
        stat: &Statx,
        kind: FileType,
    ) -> Result<bool, Error> {
        let number = (stat.stx_rdev_major, stat.stx_rdev_minor);
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        let mode = Mode::from_raw_mode(self.maker.mode(stat).as_raw_mode());
        let device = makedev(number.0, number.1);
        match mknodat(at.pair.second(), name, kind, mode, device) {
            Ok(()) => {
                // Documentation/filesystems/overlayfs.rst, "whiteouts and opaque directories".
                if kind == FileType::CharacterDevice && number == (0, 0) {
                    own.report.whiteouts.push(below(at.node.path_to(name)));
                }
                Ok(true)
            }
            // In a user namespace, or without CAP_MKNOD.
            Err(Errno::PERM) if is_device => {
                own.report.devices.push(below(at.node.path_to(name)));
                Ok(false)
            }
            Err(errno) => Err(self.target_error("cannot create", &at.node.path_to(name), errno)),
        }
    }
}
