//! The visitor that copies a tree.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use synconce_sys::directory::is_empty;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Statx, StatxAttributes, chmodat, mkdirat, openat,
};
use rustix::io::Errno;

use super::attributes::{Maker, Whole};
use super::content::ContentCopier;
use super::links::Links;
use super::{CopyOptions, CopyReport, Inode, below};
use crate::Error;
use crate::Progress;
use crate::walk::directory::{Mounts, kind_of, look, look_at};
use crate::walk::node::{DirFds, Node, path_of_root, shown};
use crate::walk::tally::Tally;
use crate::walk::visitor::{At, Entered, Left, Visitor};

/// A copy in progress.
pub(super) struct Copying<'a> {
    pub root: &'a DirFds,
    pub mounts: Mounts,
    pub maker: Maker,
    pub content: ContentCopier,
    pub links: Links<Statx>,
    /// The root of the target. Finding it within the source is an error.
    target: Statx,
    skip_unreadable: bool,
    except: Option<Inode>,
    progress: &'a dyn Progress,
    report: Mutex<CopyReport>,
}

/// State of one thread.
pub(super) struct CopyThread<'a> {
    pub buffer: Vec<u8>,
    pub tally: Tally<'a>,
    pub report: CopyReport,
}

/// A directory in a copy.
pub(super) type CopiedDirectory<'a, 'c> = At<'a, Copying<'c>>;

impl<'a> Copying<'a> {
    pub fn new(
        root: &'a DirFds,
        options: &CopyOptions,
        mounts: Mounts,
        progress: &'a dyn Progress,
    ) -> Result<Self, Error> {
        let &CopyOptions { mode, skip_unreadable, except, .. } = options;
        let target = look_at(root.second())
            .map_err(|errno| Error::new("cannot look at", &path_of_root(root.second()), errno))?;
        Ok(Self {
            root,
            mounts,
            maker: Maker::this(options.overlays),
            content: ContentCopier::new(mode),
            links: Links::new(),
            target,
            skip_unreadable,
            except,
            progress,
            report: Mutex::default(),
        })
    }

    /// Prepares the target's root.
    pub fn begin(&self, root: &DirFds) -> Result<(), Error> {
        let Some(target) = &root.second else { return Ok(()) };
        self.maker.take(target).map_err(|(act, why)| self.target_error(act, b"", why))?;
        // Before the directory was closed, another user may have put entries there.
        let failed = |errno| self.target_error("cannot copy to", b"", errno);
        if is_empty(target).map_err(failed)? { Ok(()) } else { Err(failed(Errno::NOTEMPTY)) }
    }

    pub fn report(self) -> CopyReport {
        let mut report = self.report.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.sort();
        report
    }

    /// Makes the error of an act that failed on the source.
    pub(crate) fn source_error(&self, act: &'static str, path: &[u8], errno: Errno) -> Error {
        Error::new(act, &shown(&path_of_root(self.root.first()), path), errno)
    }

    /// Makes the error of an act that failed on the target.
    pub(crate) fn target_error(
        &self,
        act: &'static str,
        path: &[u8],
        why: impl Into<io::Error>,
    ) -> Error {
        Error::new(act, &shown(&path_of_root(self.root.second()), path), why)
    }

    /// Records properties of an entry of the source that the copy may not keep.
    pub fn note(
        &self,
        at: &CopiedDirectory<'_, '_>,
        own: &mut CopyThread<'_>,
        name: &CStr,
        stat: &Statx,
    ) {
        own.report.nobodys += u64::from(self.maker.may_be_unknown(stat));
        if stat.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND) {
            own.report.flagged.push(below(at.node.path_to(name)));
        }
    }

    /// Records that an entry of the source changed during the copy.
    pub fn changed(at: &CopiedDirectory<'_, '_>, own: &mut CopyThread<'_>, name: &CStr) {
        own.report.changed.push(below(at.node.path_to(name)));
    }

    /// Records whether attributes of an entry could not be set.
    pub fn settled(
        at: &CopiedDirectory<'_, '_>,
        own: &mut CopyThread<'_>,
        name: &CStr,
        whole: &Whole,
    ) {
        if !whole.permitted {
            own.report.attributes.push(below(at.node.path_to(name)));
        }
        if !whole.of_overlays {
            own.report.overlays.push(below(at.node.path_to(name)));
        }
    }

    /// Returns whether an entry of the source that cannot be read is left out, and records it.
    pub fn skips(
        &self,
        at: &CopiedDirectory<'_, '_>,
        own: &mut CopyThread<'_>,
        name: &CStr,
    ) -> bool {
        if self.skip_unreadable {
            own.report.unreadable.push(below(at.node.path_to(name)));
        }
        self.skip_unreadable
    }

    /// Makes a directory that only this process can enter.
    fn make(&self, at: &CopiedDirectory<'_, '_>, name: &CStr) -> Result<OwnedFd, Error> {
        let fail = |act| move |errno| self.target_error(act, &at.node.path_to(name), errno);
        let parent = at.pair.second();
        mkdirat(parent, name, Mode::RWXU).map_err(fail("cannot create"))?;
        if !self.maker.makes_directories() {
            chmodat(parent, name, Mode::RWXU, AtFlags::empty())
                .map_err(fail("cannot set the mode of"))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(parent, name, flags, Mode::empty()).map_err(fail("cannot open"))
    }

    /// Makes an empty directory or file in place of a mount.
    pub(crate) fn pass_by(
        &self,
        at: &CopiedDirectory<'_, '_>,
        own: &mut CopyThread<'_>,
        name: &CStr,
    ) -> Result<(), Error> {
        let stat = look(at.pair.first(), name)
            .map_err(|errno| self.source_error("cannot look at", &at.node.path_to(name), errno))?;
        own.report.mounts.push(below(at.node.path_to(name)));
        own.tally.entry()?;
        if kind_of(&stat) != FileType::Directory {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            return openat(at.pair.second(), name, flags, Mode::RUSR | Mode::WUSR)
                .map(drop)
                .map_err(|errno| {
                    self.target_error("cannot create", &at.node.path_to(name), errno)
                });
        }
        // The directory below the mount cannot be seen. A mounted root, as on /tmp or /proc,
        // usually has the same mode and owner.
        let made = self.make(at, name)?;
        self.maker
            .own(&made, &stat)
            .map_err(|(act, why)| self.target_error(act, &at.node.path_to(name), why))
    }
}

impl<'a> Visitor for Copying<'a> {
    type Data = Statx;
    type Own = CopyThread<'a>;

    fn own(&self) -> CopyThread<'a> {
        CopyThread {
            buffer: Vec::new(),
            tally: Tally::new(self.progress, "cannot copy"),
            report: CopyReport::default(),
        }
    }

    fn enter(
        &self,
        at: &CopiedDirectory<'_, 'a>,
        own: &mut CopyThread<'a>,
        name: &CStr,
    ) -> Entered<Statx> {
        let fail = |act| move |errno| self.source_error(act, &at.node.path_to(name), errno);
        let source = match self.mounts.directory(at.pair.first(), name) {
            Ok(source) => source,
            Err(Errno::XDEV) => return self.pass_by(at, own, name).map(|()| None),
            Err(Errno::NOENT) => {
                Self::changed(at, own, name);
                return Ok(None);
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                Self::changed(at, own, name);
                return self.entry(at, own, name, FileType::Unknown).map(|_| None);
            }
            Err(Errno::ACCESS) if self.skips(at, own, name) => return Ok(None),
            Err(errno) => return Err(fail("cannot open")(errno)),
        };
        let stat = look_at(&source).map_err(fail("cannot look at"))?;
        if self.except == Some(inode(&stat)) {
            own.report.excepted.push(below(at.node.path_to(name)));
            return Ok(None);
        }
        if is_same(&stat, &self.target) {
            return Err(fail("cannot copy into the tree itself:")(Errno::INVAL));
        }
        self.note(at, own, name, &stat);
        let target = self.make(at, name)?;
        Ok(Some((DirFds { first: source, second: Some(target) }, stat)))
    }

    fn entry(
        &self,
        at: &CopiedDirectory<'_, 'a>,
        own: &mut CopyThread<'a>,
        name: &CStr,
        kind: FileType,
    ) -> Result<bool, Error> {
        let is_directory = self.file(at, own, name, kind)?;
        if !is_directory {
            own.tally.entry()?;
        }
        Ok(is_directory)
    }

    fn leave(
        &self,
        at: &CopiedDirectory<'_, 'a>,
        own: &mut CopyThread<'a>,
        _: Option<&DirFds>,
    ) -> Result<Left, Error> {
        let stat = &at.node.data;
        let path = || at.node.path();
        let now = look_at(&at.pair.first)
            .map_err(|errno| self.source_error("cannot look at", &path(), errno))?;
        if has_changed(stat, &now) {
            Self::changed(at, own, c"");
        }
        if at.node.parent().is_none() {
            self.note(at, own, c"", stat);
        }
        own.tally.entry()?;
        let settled = self
            .maker
            .settle(at.pair.first(), at.pair.second(), stat, Mode::RWXU)
            .map_err(|(act, why)| self.target_error(act, &path(), why))?;
        Self::settled(at, own, c"", &settled);
        Ok(Left::Done)
    }

    fn reopen(&self, parent: &DirFds, node: &TargetDirectory) -> Result<DirFds, Errno> {
        let name = node.name();
        let first = self.mounts.directory(parent.first(), name)?;
        Ok(DirFds { first, second: Some(Mounts::Stop.directory(parent.second(), name)?) })
    }

    fn error(&self, act: &'static str, path: &[u8], errno: Errno) -> Error {
        self.source_error(act, path, errno)
    }

    fn finish(&self, mut own: CopyThread<'a>) {
        (own.report.entries, own.report.bytes) = own.tally.total();
        self.report.lock().unwrap_or_else(PoisonError::into_inner).join(own.report);
    }
}

/// Returns whether a file was changed between two calls of statx(2).
pub(super) fn has_changed(before: &Statx, now: &Statx) -> bool {
    let what = |stat: &Statx| {
        let (mtime, ctime) = (stat.stx_mtime, stat.stx_ctime);
        (mtime.tv_sec, mtime.tv_nsec, ctime.tv_sec, ctime.tv_nsec, stat.stx_size)
    };
    what(before) != what(now)
}

fn is_same(one: &Statx, other: &Statx) -> bool {
    inode(one) == inode(other)
}

fn inode(stat: &Statx) -> Inode {
    (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)
}

/// A directory of the target that other threads can refer to.
pub(super) type TargetDirectory = Node<Statx>;
