//! Makes a tree of an archive.

use std::collections::HashSet;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fremovexattr, fstat, ftruncate, linkat, mkdirat,
    mknodat, openat, statat, symlinkat, unlinkat,
};
use rustix::io::{Errno, pwrite};
use synconce_durable::error::Error;

use super::attributes::{File, Manner, apply};
use super::member::{Attributes, Kind, Member};
use super::places::{Places, below_root};
use super::reader::Reader;
use super::source::Source;
use super::{LeftOut, Progress, failed, go_on, refuse};

/// How an archive is unpacked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnpackOptions {
    /// Sets owners and groups by their numbers. Without, all belongs to the caller.
    pub owners: bool,
    /// Sets attributes by which an overlay keeps its books (`trusted.overlay.*`,
    /// `user.overlay.*`), which could direct one that has the tree as a layer.
    pub overlay_attributes: bool,
}

impl Default for UnpackOptions {
    fn default() -> Self {
        Self { owners: true, overlay_attributes: false }
    }
}

/// What was made of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unpacked {
    /// Members, those that replaced others included.
    pub entries: u64,
    /// Bytes of content, without holes.
    pub bytes: u64,
    /// Device nodes that the caller may not make, and attributes that the file system or the
    /// caller's rights do not allow.
    pub left_out: LeftOut,
    /// Character devices 0:0, which are removed files to an overlay.
    pub whiteouts: u64,
}

/// Unpacks what [`super::open`] opened, and finishes it. When a decompressor failed, that is
/// the error, and not that the archive ends early.
///
/// # Errors
/// As [`unpack`], and as [`Source::finish`].
pub fn unpack_from(
    mut source: Source,
    target: BorrowedFd<'_>,
    options: &UnpackOptions,
    progress: &dyn Progress,
) -> Result<Unpacked, Error> {
    let unpacked = unpack(&mut source, target, options, progress);
    // There may be much left to decompress, or somebody who has yet to write it.
    if unpacked.is_ok() || source.ended {
        source.finish()?;
    }
    unpacked
}

/// Unpacks an archive into the open, empty directory `target`. Nothing is synced. What it keeps
/// in memory is one member's names and attributes, and those of all directories.
///
/// A member replaces an earlier one of its name, but for a directory that is not empty.
///
/// # Errors
/// The archive is damaged or cut short, or holds what cannot be made (the error names the
/// member), or the caller does not want it any more (`ECANCELED`). The target is then in no state
/// to be used. As an ordinary user outside of a user namespace, clear
/// [`UnpackOptions::owners`].
pub fn unpack(
    input: impl Read,
    target: BorrowedFd<'_>,
    options: &UnpackOptions,
    progress: &dyn Progress,
) -> Result<Unpacked, Error> {
    let places = Places::new(target).map_err(|error| failed("cannot use", b"", error))?;
    // Or each new file would inherit from it; what the root is to have comes at the end.
    let _ = fremovexattr(places.target(), "system.posix_acl_default");
    let mut unpacker = Unpacker {
        reader: Reader::new(input),
        places,
        manner: Manner { owners: options.owners, overlay_attributes: options.overlay_attributes },
        progress,
        done: Unpacked::default(),
        directories: Vec::new(),
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
    places: Places,
    manner: Manner,
    progress: &'a dyn Progress,
    done: Unpacked,
    /// Their attributes come last: what is made in them changes their times, and a mode or
    /// default list of theirs could be in the way.
    directories: Vec<Later>,
    /// Device nodes that could not be made, as other members may be links to them.
    no_devices: HashSet<Vec<u8>>,
    image: ImageSigns,
}

/// A directory whose attributes are to be set.
struct Later {
    path: Vec<u8>,
    attributes: Attributes,
    /// Device and inode, to know it again.
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
            if member.kind != Kind::Directory {
                return Err(refuse(&member.path, "the root of a tree must be a directory"));
            }
            let target = self.places.target();
            let is = fstat(target).map_err(|errno| failed("cannot read", b"", errno))?;
            self.later(path, member.attributes, &is);
        } else {
            let (dir, name) = self.places.parent(&path, true)?;
            self.make(&dir, name, &path, member)?;
        }
        self.done.entries += 1;
        self.progress.add(1, 0);
        Ok(())
    }

    fn make(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8], it: Member) -> Result<(), Error> {
        match &it.kind {
            Kind::File => return self.file(dir, name, path, &it),
            Kind::Directory => return self.directory(dir, name, path, it.attributes),
            Kind::Link(target) => return self.link(dir, name, path, target),
            Kind::Symlink(target) => {
                self.replacing(dir, name, path, || symlinkat(&**target, dir, name))?;
                return self.apply(File::Link(dir.as_fd(), name), path, &it.attributes);
            }
            Kind::Fifo => self.node(dir, name, path, FileType::Fifo, 0)?,
            Kind::CharDevice(number) | Kind::BlockDevice(number) => {
                let is_char = matches!(it.kind, Kind::CharDevice(_));
                let kind = if is_char { FileType::CharacterDevice } else { FileType::BlockDevice };
                match self.node(dir, name, path, kind, *number) {
                    Err(error) if error.io().kind() == std::io::ErrorKind::PermissionDenied => {
                        self.done.left_out.note(path, format!("a device node: {}", error.io()));
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
        // Writable until all of its attributes are set, which for some needs the right to write.
        let mode = Mode::from_raw_mode(it.attributes.mode & 0o777 | 0o600);
        let file = self.replacing(dir, name, path, || openat(dir, name, flags, mode))?;
        let piece = match &it.map {
            None => self.content(&file, path, 0, it.stored),
            Some(map) => ftruncate(&file, map.size)
                .map_err(|errno| failed("cannot write", path, errno))
                .and_then(|()| {
                    map.pieces
                        .iter()
                        .try_for_each(|(at, length)| self.content(&file, path, *at, *length))
                }),
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
            let written = written.map_err(|errno| failed("cannot write", path, errno))?;
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
            result => result.map_err(|errno| failed("cannot create", path, errno))?,
        }
        let is = self.stat(dir, name, path)?;
        self.later(path.to_vec(), attributes, &is);
        Ok(())
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
            self.done.left_out.note(path, "a link to a device node");
            self.no_devices.insert(path.to_vec());
            return Ok(());
        }
        let describe = |errno: Errno| {
            let (target, error) = (target.escape_ascii(), std::io::Error::from(errno));
            failed("cannot link", path, std::io::Error::other(format!("to {target}: {error}")))
        };
        if target.is_empty() {
            return Err(describe(Errno::PERM));
        }
        let (target_dir, target_name) = self.places.parent(&target, false)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let is = statat(&target_dir, target_name, flags).map_err(describe)?;
        if let Ok(there) = statat(dir, name, flags) {
            // A second member for the same link, or a link to itself: removing would lose the file.
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

    /// Does `make`; what has the name already is removed, never written through.
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
        made.map_err(|errno| failed("cannot create", path, errno))
    }

    fn remove(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<(), Error> {
        self.places.forget();
        self.no_devices.remove(path);
        let removed = match unlinkat(dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => unlinkat(dir, name, AtFlags::REMOVEDIR),
            removed => removed,
        };
        removed.map_err(|errno| failed("cannot replace", path, errno))
    }

    fn stat(&self, dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<Stat, Error> {
        statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| failed("cannot read", path, errno))
    }

    fn apply(&mut self, file: File<'_>, path: &[u8], wanted: &Attributes) -> Result<(), Error> {
        let is = match file {
            File::Open(file) => fstat(file),
            File::Named(dir, name) | File::Link(dir, name) => {
                statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            }
        };
        let is = is.map_err(|errno| failed("cannot read", path, errno))?;
        apply(file, &is, path, wanted, self.manner, &mut self.done.left_out)
    }

    fn later(&mut self, path: Vec<u8>, attributes: Attributes, is: &Stat) {
        self.directories.push(Later { path, attributes, inode: (is.st_dev, is.st_ino) });
    }

    /// Sets what directories are to have, those below before those above, whose modes may shut
    /// the caller out, and of two members of one name the later one last.
    fn finish(mut self) -> Result<Unpacked, Error> {
        let mut directories = std::mem::take(&mut self.directories);
        directories.sort_by(|one, other| other.path.cmp(&one.path));
        for later in &directories {
            go_on("cannot unpack", &later.path, self.progress)?;
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = if later.path.is_empty() {
                openat(self.places.target(), ".", flags, Mode::empty())
            } else {
                match self.places.parent(&later.path, false) {
                    Ok((dir, name)) => openat(&*dir, name, flags, Mode::empty()),
                    // It was replaced, and with it this one.
                    Err(_) => continue,
                }
            };
            let dir = match opened {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                opened => opened.map_err(|errno| failed("cannot open", &later.path, errno))?,
            };
            let is = fstat(&dir).map_err(|errno| failed("cannot read", &later.path, errno))?;
            if (is.st_dev, is.st_ino) == later.inode {
                self.apply(File::Open(dir.as_fd()), &later.path, &later.attributes)?;
            }
        }
        Ok(self.done)
    }
}

/// What tells an image, which has its layers as archives of their own, from a root.
#[derive(Default)]
struct ImageSigns {
    has_index: bool,
    has_layers: bool,
}

impl ImageSigns {
    fn see(&mut self, path: &[u8], kind: &Kind) -> Result<(), Error> {
        if *kind == Kind::Directory {
            return Ok(());
        }
        let hash = |name: &[u8]| name.len() == 64 && name.iter().all(u8::is_ascii_hexdigit);
        let stem = |path: &[u8]| match path.iter().position(|byte| matches!(byte, b'/' | b'.')) {
            Some(end) => hash(&path[..end]) && matches!(&path[end..], b"/layer.tar" | b".tar"),
            None => false,
        };
        self.has_index |= matches!(path, b"manifest.json" | b"index.json");
        self.has_layers |= stem(path) || path.strip_prefix(b"blobs/sha256/").is_some_and(hash);
        if self.has_index && self.has_layers {
            return Err(refuse(
                path,
                "this is an image of layers, not a root; make a container of it and use \
                 `docker export` (docker create IMAGE; docker export CONTAINER)",
            ));
        }
        Ok(())
    }
}
