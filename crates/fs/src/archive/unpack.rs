//! Makes a tree from an archive.

use std::collections::HashSet;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fremovexattr, fstat, ftruncate, linkat, mkdirat,
    mknodat, openat, statat, symlinkat, unlinkat,
};
use rustix::io::{Errno, pwrite};
use synconce_durable::error::{Context, Error};

use super::attributes::{File, apply};
use super::image::ImageSigns;
use super::member::{Attributes, Member, MemberKind};
use super::places::{IfMissing, UnpackedDirectories, below_root};
use super::reader::Reader;
use super::source::{ArchiveSource, UntilCancelled};
use super::{LeftOut, Progress, as_path, failed, go_on, refuse};
use synconce_sys::reason;

/// The most memory for what is set at the end, in bytes: enough for two million directories with
/// an access list and a label each.
const MOST_KEPT: usize = 512 << 20;

/// What was unpacked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unpacked {
    /// The number of members, including those that replaced others.
    pub entries: u64,
    /// Bytes of content, without holes.
    pub bytes: u64,
    /// What was left out: device nodes that the caller may not make, and attributes that the
    /// file system or the caller's rights do not allow.
    pub left_out: LeftOut,
    /// The number of character devices 0:0, which an overlay shows as removed files.
    pub whiteouts: u64,
}

/// Unpacks an archive from [`super::open`], and finishes the source. If a decompressor failed,
/// that is the error, not the early end of the archive.
///
/// # Errors
/// As [`unpack`], and as [`ArchiveSource::finish`].
pub fn unpack_from(
    mut source: ArchiveSource,
    target: BorrowedFd<'_>,
    progress: &dyn Progress,
) -> Result<Unpacked, Error> {
    let input = UntilCancelled { input: &mut source, progress };
    let unpacked = unpack(input, target, progress);
    // After an error elsewhere, the rest is not decompressed: it may be large, or its writer
    // may never end.
    if unpacked.is_ok() || source.ended {
        source.finish(progress)?;
    }
    unpacked
}

/// Unpacks an archive into the open, empty directory `target`. Nothing is synced. Memory holds
/// one member's names and attributes, and at most 512 MiB of attributes of directories.
///
/// A member replaces an earlier member of the same name, unless that is a directory with
/// entries.
///
/// # Errors
/// The archive is damaged or truncated, or has a member that cannot be made (the error names
/// the member), or the work was cancelled (`ECANCELED`). The target is then incomplete.
pub fn unpack(
    input: impl Read,
    target: BorrowedFd<'_>,
    progress: &dyn Progress,
) -> Result<Unpacked, Error> {
    let places = UnpackedDirectories::new(target).on("cannot use", as_path(b""))?;
    // New files would inherit this list; the root's own attributes are set at the end.
    let _ = fremovexattr(places.target(), "system.posix_acl_default");
    let mut unpacker = Unpacker {
        reader: Reader::new(input),
        places,
        progress,
        done: Unpacked::default(),
        directories: Vec::new(),
        kept: 0,
        no_devices: HashSet::new(),
        image: ImageSigns::default(),
    };
    while let Some(member) = unpacker.reader.next()? {
        unpacker.member(member)?;
    }
    unpacker.finish()
}

struct Unpacker<'a, R> {
    reader: Reader<R>,
    places: UnpackedDirectories,
    progress: &'a dyn Progress,
    done: Unpacked,
    /// Directories' attributes are set last: making entries changes the times, and a mode or
    /// default list could prevent or change the entries.
    directories: Vec<Later>,
    /// The bytes of memory that `directories` takes.
    kept: usize,
    /// Device nodes that could not be made; other members may be links to them.
    no_devices: HashSet<Vec<u8>>,
    image: ImageSigns,
}

/// A directory whose attributes are still to be set.
struct Later {
    path: Vec<u8>,
    attributes: Attributes,
    /// Device and inode, to recognise the directory.
    inode: (u64, u64),
}

impl<R: Read> Unpacker<'_, R> {
    fn member(&mut self, member: Member) -> Result<(), Error> {
        let path = below_root(&member.path, &member.path)?;
        go_on("cannot unpack", &path, self.progress)?;
        self.image.see(&path, &member.kind)?;
        if let Some(strange) = &member.strange {
            self.done.left_out.note(&path, strange);
        }
        if path.is_empty() {
            if member.kind != MemberKind::Directory {
                return Err(refuse(&member.path, "the root of a tree must be a directory"));
            }
            let target = self.places.target();
            let is = fstat(target).on("cannot read", as_path(b""))?;
            self.later(path, member.attributes, &is)?;
        } else {
            let (dir, name) = self.places.parent(&path, IfMissing::Make)?;
            self.make(&dir, name, &path, member)?;
        }
        self.done.entries += 1;
        self.progress.add(1, 0);
        Ok(())
    }

    fn make(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8], it: Member) -> Result<(), Error> {
        match &it.kind {
            MemberKind::File => return self.file(dir, name, path, &it),
            MemberKind::Directory => return self.directory(dir, name, path, it.attributes),
            MemberKind::Link(target) => return self.link(dir, name, path, target),
            MemberKind::Symlink(target) => {
                self.replacing(dir, name, path, || symlinkat(&**target, dir, name))?;
                return self.apply(File::Link(dir.as_fd(), name), path, &it.attributes);
            }
            MemberKind::Fifo => self.node(dir, name, path, FileType::Fifo, 0)?,
            MemberKind::CharDevice(number) | MemberKind::BlockDevice(number) => {
                let is_char = matches!(it.kind, MemberKind::CharDevice(_));
                let kind = if is_char { FileType::CharacterDevice } else { FileType::BlockDevice };
                match self.node(dir, name, path, kind, *number) {
                    Err(error) if error.io().kind() == io::ErrorKind::PermissionDenied => {
                        let what = format!("a device node, left out: {}", reason(error.io()));
                        self.done.left_out.note(path, what);
                        self.no_devices.insert(path.to_vec());
                        return Ok(());
                    }
                    result => result?,
                }
                if is_char && *number == 0 {
                    let what = "a device 0:0, which an overlay takes for a removed file";
                    self.done.left_out.note(path, what);
                    self.done.whiteouts += 1;
                }
            }
        }
        self.apply(File::Named(dir.as_fd(), name), path, &it.attributes)
    }

    fn file(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8], it: &Member) -> Result<(), Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // The file stays writable until all attributes are set; user.* attributes need write
        // permission (xattr(7)).
        let mode = Mode::from_raw_mode(it.attributes.mode & 0o777 | 0o600);
        let file = self.replacing(dir, name, path, || openat(dir, name, flags, mode))?;
        let piece = match &it.map {
            None => self.content(&file, path, 0, it.stored),
            Some(map) => {
                ftruncate(&file, map.size).on("cannot write", as_path(path)).and_then(|()| {
                    map.pieces
                        .iter()
                        .try_for_each(|(at, length)| self.content(&file, path, *at, *length))
                })
            }
        };
        piece?;
        self.apply(File::Open(file.as_fd()), path, &it.attributes)
    }

    /// Writes the next `length` bytes of the member's content at `offset`.
    fn content(
        &mut self,
        file: &OwnedFd,
        path: &[u8],
        offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < length {
            go_on("cannot unpack", path, self.progress)?;
            let piece = self.reader.content()?;
            let most = usize::try_from(length - done).unwrap_or(usize::MAX).min(piece.len());
            let written = match pwrite(file, &piece[..most], offset + done) {
                Err(Errno::INTR) => continue,
                Ok(0) => Err(Errno::IO),
                result => result,
            };
            let written = written.on("cannot write", as_path(path))?;
            self.reader.used(written);
            done += written as u64;
            self.progress.add(0, written as u64);
        }
        self.done.bytes += length;
        Ok(())
    }

    fn directory(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        attributes: Attributes,
    ) -> Result<(), Error> {
        let make = || mkdirat(dir, name, Mode::RWXU);
        let exists = |is: &Stat| FileType::from_raw_mode(is.st_mode) == FileType::Directory;
        match make() {
            Err(Errno::EXIST) if self.stat(dir, name, path).is_ok_and(|is| exists(&is)) => {}
            Err(Errno::EXIST) => self.replacing(dir, name, path, make)?,
            result => result.on("cannot create", as_path(path))?,
        }
        let is = self.stat(dir, name, path)?;
        self.later(path.to_vec(), attributes, &is)
    }

    fn link(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        target: &[u8],
    ) -> Result<(), Error> {
        let target = below_root(path, target)?;
        if self.no_devices.contains(&target) {
            self.done.left_out.note(path, "a link to a device node, left out");
            self.no_devices.insert(path.to_vec());
            return Ok(());
        }
        let describe = |errno: Errno| {
            let (target, error) = (target.escape_ascii(), reason(&errno.into()));
            failed("cannot link", path, io::Error::other(format!("to {target}: {error}")))
        };
        if target.is_empty() {
            return Err(describe(Errno::PERM));
        }
        let (target_dir, target_name) = self.places.parent(&target, IfMissing::Fail)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let is = statat(&target_dir, target_name, flags).map_err(describe)?;
        if let Ok(there) = statat(dir, name, flags) {
            // A second member for the same link, or a link to itself: removing the file would
            // lose it.
            if (there.st_dev, there.st_ino) == (is.st_dev, is.st_ino) {
                return Ok(());
            }
            self.remove(dir, name, path)?;
        }
        linkat(&target_dir, target_name, dir, name, AtFlags::empty()).map_err(describe)
    }

    fn node(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        kind: FileType,
        number: u64,
    ) -> Result<(), Error> {
        let mode = Mode::RUSR | Mode::WUSR;
        self.replacing(dir, name, path, || mknodat(dir, name, kind, mode, number))
    }

    /// Calls `make`. An existing entry of the name is removed, never written through.
    fn replacing<T>(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        make: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Error> {
        let made = match make() {
            Err(Errno::EXIST) => {
                self.remove(dir, name, path)?;
                make()
            }
            made => made,
        };
        made.on("cannot create", as_path(path))
    }

    fn remove(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<(), Error> {
        self.places.forget();
        self.no_devices.remove(path);
        let removed = match unlinkat(dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => unlinkat(dir, name, AtFlags::REMOVEDIR),
            removed => removed,
        };
        removed.on("cannot replace", as_path(path))
    }

    fn stat(&self, dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<Stat, Error> {
        statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).on("cannot read", as_path(path))
    }

    fn apply(&mut self, file: File<'_>, path: &[u8], wanted: &Attributes) -> Result<(), Error> {
        let is = match file {
            File::Open(file) => fstat(file),
            File::Named(dir, name) | File::Link(dir, name) => {
                statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            }
        };
        let is = is.on("cannot read", as_path(path))?;
        apply(file, &is, path, wanted, &mut self.done.left_out)
    }

    fn later(&mut self, path: Vec<u8>, attributes: Attributes, is: &Stat) -> Result<(), Error> {
        let length = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len();
        let xattrs: usize =
            attributes.xattrs.iter().map(|xattr| size_of_val(xattr) + length(xattr)).sum();
        self.kept += size_of::<Later>() + path.len() + xattrs;
        if self.kept > MOST_KEPT {
            return Err(refuse(&path, "the attributes of all directories are too long"));
        }
        self.directories.push(Later { path, attributes, inode: (is.st_dev, is.st_ino) });
        Ok(())
    }

    /// Sets the attributes of directories. Children come before parents, because a parent's
    /// mode may lock the caller out. Of two members with the same name, the later one is
    /// applied last.
    fn finish(mut self) -> Result<Unpacked, Error> {
        let mut directories = std::mem::take(&mut self.directories);
        directories.sort_by(|one, other| other.path.cmp(&one.path));
        for later in &directories {
            go_on("cannot unpack", &later.path, self.progress)?;
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = if later.path.is_empty() {
                openat(self.places.target(), ".", flags, Mode::empty())
            } else {
                match self.places.parent(&later.path, IfMissing::Fail) {
                    Ok((dir, name)) => openat(&*dir, name, flags, Mode::empty()),
                    // The parent was replaced, so this directory is gone.
                    Err(_) => continue,
                }
            };
            let dir = match opened {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                opened => opened.on("cannot open", as_path(&later.path))?,
            };
            let is = fstat(&dir).on("cannot read", as_path(&later.path))?;
            if (is.st_dev, is.st_ino) == later.inode {
                self.apply(File::Open(dir.as_fd()), &later.path, &later.attributes)?;
            }
        }
        Ok(self.done)
    }
}
