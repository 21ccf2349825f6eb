//! Makes an archive from a tree.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags, makedev, openat,
    readlinkat, statx,
};
use rustix::io::{Errno, pread};
use synconce_durable::error::{Context, Error};

use super::attributes::File;
use super::descend::{self, Descent};
use super::member::{Attributes, MemberKind, Xattr};
use super::sparse::Map;
use super::write::{Outgoing, Writer};
use super::{LeftOut, Progress, as_path, failed, go_on};
use crate::walk::directory::kind_of;
use crate::xattrs::is_overlays;

/// What was packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packed {
    /// The number of members.
    pub entries: u64,
    /// Bytes of content, without the holes that the archive leaves out.
    pub bytes: u64,
    /// What was left out: sockets and files of unknown kinds, which no archive can hold; mounts
    /// below the root; overlay's own attributes.
    pub left_out: LeftOut,
}

/// Writes the tree at the open directory `source` as a PAX archive. The same tree gives the
/// same bytes: names are sorted, owners are numbers, and the only times are those of last
/// modification. Memory holds the names in the directories on the way to the current file, and
/// the paths of files with several links.
///
/// Mounts below the root are not crossed. For a directory that is mounted there, the archive has
/// an empty directory with the owner, mode and time of the mounted one. It has nothing for a file
/// that is mounted there.
///
/// # Errors
/// A file cannot be read, or changed while it was read; `output` cannot be written; or the work
/// was cancelled (`ECANCELED`). After an error the output lacks the end of an archive.
pub fn pack(
    source: BorrowedFd<'_>,
    output: impl Write,
    progress: &dyn Progress,
) -> Result<Packed, Error> {
    let mut packer = Packer {
        writer: Writer::new(output),
        links: HashMap::new(),
        progress,
        done: Packed::default(),
    };
    let mut worker = Descent::new(source);
    let root = descend::open(source, b".").on("cannot open", as_path(b""))?;
    packer.directory(b"", &root)?;
    worker.enter(root).on("cannot list", as_path(b""))?;
    loop {
        let next = worker.next().on("cannot open again", as_path(worker.path()))?;
        let Some((dir, name)) = next else { break };
        if let Some(dir) = packer.entry(&dir, &name, worker.path())? {
            worker.enter(dir).on("cannot list", as_path(worker.path()))?;
        }
    }
    packer.writer.finish().map_err(unwritable)?;
    Ok(packer.done)
}

struct Packer<'a, W> {
    writer: Writer<W>,
    /// The first path of each file with several links, and the number of links still to come.
    links: HashMap<(u32, u32, u64), (Vec<u8>, u32)>,
    progress: &'a dyn Progress,
    done: Packed,
}

impl<W: Write> Packer<'_, W> {
    /// Writes one entry. Returns an open directory if the caller is to descend into the entry.
    fn entry(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<Option<OwnedFd>, Error> {
        go_on("cannot pack", path, self.progress)?;
        let is = stat(dir.as_fd(), name).on("cannot read", as_path(path))?;
        let file_type = kind_of(&is);
        if file_type == FileType::Directory {
            return match descend::open(dir.as_fd(), name) {
                Err(Errno::XDEV) => {
                    self.done.left_out.note(path, "what is mounted here");
                    self.write(path, &MemberKind::Directory, attributes(&is, Vec::new()))
                        .map(|()| None)
                }
                opened => {
                    let opened = opened.on("cannot open", as_path(path))?;
                    self.directory(path, &opened).map(|()| Some(opened))
                }
            };
        }
        if is.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            self.done.left_out.note(path, "what is mounted here");
        } else if file_type == FileType::Socket {
            self.done.left_out.note(path, "a socket");
        } else if let Some(first) = self.first_link(path, &is) {
            self.write(path, &MemberKind::Link(first), attributes(&is, Vec::new()))?;
        } else if file_type == FileType::RegularFile {
            self.file(dir, name, path, &is)?;
        } else {
            self.special(dir, name, path, &is, file_type)?;
        }
        Ok(None)
    }

    /// Returns the name of the file's first member if the entry is another link to it.
    fn first_link(&mut self, path: &[u8], is: &Statx) -> Option<Vec<u8>> {
        if is.stx_nlink < 2 {
            return None;
        }
        let inode = (is.stx_dev_major, is.stx_dev_minor, is.stx_ino);
        let Some((first, left)) = self.links.get_mut(&inode) else {
            self.links.insert(inode, (path.to_vec(), is.stx_nlink - 1));
            return None;
        };
        let member = member_name(first);
        *left -= 1;
        if *left == 0 {
            self.links.remove(&inode);
        }
        Some(member)
    }

    fn directory(&mut self, path: &[u8], dir: &OwnedFd) -> Result<(), Error> {
        let is = stat(dir.as_fd(), b"").on("cannot read", as_path(path))?;
        let xattrs = self.xattrs(File::Open(dir.as_fd()), path)?;
        self.write(path, &MemberKind::Directory, attributes(&is, xattrs))
    }

    fn special(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        is: &Statx,
        file_type: FileType,
    ) -> Result<(), Error> {
        let number = makedev(is.stx_rdev_major, is.stx_rdev_minor);
        let kind = match file_type {
            FileType::Symlink => {
                let target = readlinkat(dir, name, Vec::new()).on("cannot read", as_path(path))?;
                MemberKind::Symlink(target.into_bytes())
            }
            FileType::CharacterDevice => MemberKind::CharDevice(number),
            FileType::BlockDevice => MemberKind::BlockDevice(number),
            FileType::Fifo => MemberKind::Fifo,
            _ => {
                self.done.left_out.note(path, "a file of an unknown kind");
                return Ok(());
            }
        };
        let xattrs = self.xattrs(File::Link(dir.as_fd(), name), path)?;
        self.write(path, &kind, attributes(is, xattrs))
    }

    fn file(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8], is: &Statx) -> Result<(), Error> {
        let file = open_file(dir, name).on("cannot open", as_path(path))?;
        let size = is.stx_size;
        let read = |error: std::io::Error| failed("cannot read", path, error);
        // A file with as many blocks as its size needs has no holes worth a search by lseek(2).
        let map = if is.stx_blocks.saturating_mul(512) < size {
            Map::read(file.as_fd(), size).map_err(read)?
        } else {
            None
        };
        let xattrs = self.xattrs(File::Open(file.as_fd()), path)?;
        self.writer
            .member(&Outgoing {
                path: &member_name(path),
                kind: &MemberKind::File,
                size,
                map: map.as_ref(),
                attributes: &attributes(is, xattrs),
            })
            .map_err(unwritable)?;
        let whole = [(0, size)];
        for (at, length) in map.as_ref().map_or(&whole[..], |map| &map.pieces) {
            self.content(&file, path, *at, *length)?;
        }
        self.writer.pad().map_err(unwritable)?;
        let now = stat(file.as_fd(), b"").on("cannot read", as_path(path))?;
        let seen =
            |is: &Statx| (is.stx_ino, is.stx_size, is.stx_mtime.tv_sec, is.stx_mtime.tv_nsec);
        if seen(&now) != seen(is) {
            return Err(changed(path));
        }
        self.count();
        Ok(())
    }

    fn content(&mut self, file: &OwnedFd, path: &[u8], at: u64, length: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < length {
            go_on("cannot pack", path, self.progress)?;
            let room = self.writer.room().map_err(unwritable)?;
            let most = usize::try_from(length - done).unwrap_or(usize::MAX).min(room.len());
            let got = match pread(file, &mut room[..most], at + done) {
                Err(Errno::INTR) => continue,
                Ok(0) => return Err(changed(path)),
                result => result.on("cannot read", as_path(path))?,
            };
            self.writer.filled(got);
            done += got as u64;
            self.progress.add(0, got as u64);
        }
        self.done.bytes += length;
        Ok(())
    }

    /// Writes a member without content.
    fn write(
        &mut self,
        path: &[u8],
        kind: &MemberKind,
        attributes: Attributes,
    ) -> Result<(), Error> {
        let mut name = member_name(path);
        if *kind == MemberKind::Directory && !path.is_empty() {
            name.push(b'/');
        }
        let it = Outgoing { path: &name, kind, size: 0, map: None, attributes: &attributes };
        self.writer.member(&it).map_err(unwritable)?;
        self.count();
        Ok(())
    }

    fn xattrs(&mut self, file: File<'_>, path: &[u8]) -> Result<Vec<Xattr>, Error> {
        let mut xattrs = file.xattrs().on("cannot read the attributes of", as_path(path))?;
        // They mean nothing without the other layers of the overlay.
        xattrs.retain(|(name, _)| {
            let is_own = is_overlays(name);
            if is_own {
                self.done.left_out.note(path, format!("the attribute {}", name.escape_ascii()));
            }
            !is_own
        });
        Ok(xattrs)
    }

    fn count(&mut self) {
        self.done.entries += 1;
        self.progress.add(1, 0);
    }
}

fn member_name(path: &[u8]) -> Vec<u8> {
    [b"./", path].concat()
}

fn attributes(is: &Statx, xattrs: Vec<Xattr>) -> Attributes {
    Attributes {
        mode: u32::from(is.stx_mode) & 0o7777,
        uid: is.stx_uid,
        gid: is.stx_gid,
        mtime: (is.stx_mtime.tv_sec, is.stx_mtime.tv_nsec),
        xattrs,
    }
}

fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    statx(dir, name, flags, StatxFlags::BASIC_STATS)
}

/// Opens a file for reading, without changing its access time if that is permitted.
fn open_file(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    // If the file was replaced by a named pipe after the stat, the open does not block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(dir, name, flags, Mode::empty()),
        result => result,
    }
}

fn changed(path: &[u8]) -> Error {
    failed("cannot pack", path, std::io::Error::other("it changed while it was read"))
}

fn unwritable(error: std::io::Error) -> Error {
    Error::new("cannot write", Path::new("the archive"), error)
}
