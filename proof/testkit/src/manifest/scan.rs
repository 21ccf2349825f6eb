//! Reads a tree by directory descriptors: no path is too long, and a concurrent rename cannot
//! redirect the scan.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags, openat,
    readlinkat, statx,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::escape::escape;
use super::{Entry, FileKind, Manifest, ManifestOptions};
use crate::Result;
use crate::error::Context;

type Inode = (u32, u32, u64);

pub(super) fn scan(root: &Path, options: &ManifestOptions) -> Result<Manifest> {
    let dir =
        openat(CWD, root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let dir = dir.context("open", root)?;
    let data = stat(dir.as_fd(), b"").context("stat", root)?;
    let mut scan = Scan {
        options,
        entries: BTreeMap::new(),
        paths: HashMap::new(),
        hashes: HashMap::new(),
        buffer: vec![0; 1 << 16],
    };
    let mut entry = scan.describe(&data);
    scan.note(&mut entry, |scan, entry| {
        entry.xattrs = scan.xattrs(&format!("/proc/self/fd/{}/.", dir.as_raw_fd()))?;
        scan.directory(&dir, "")
    });
    scan.entries.insert(".".to_owned(), entry);
    Ok(scan.finish())
}

struct Scan<'a> {
    options: &'a ManifestOptions,
    entries: BTreeMap<String, Entry>,
    /// The paths of files with several links.
    paths: HashMap<Inode, Vec<String>>,
    /// The content's hash by inode: a file with several links is read once.
    hashes: HashMap<Inode, String>,
    buffer: Vec<u8>,
}

impl Scan<'_> {
    /// Reads the entries of a directory; `prefix` is its path with a trailing slash.
    fn directory(&mut self, dir: &OwnedFd, prefix: &str) -> io::Result<()> {
        for name in Dir::read_from(dir)? {
            let name = name?;
            let name = name.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let path = format!("{prefix}{}", escape(name));
            if !self.options.ignores(&path) {
                let entry = self.entry(dir, name, &path);
                self.entries.insert(path, entry);
            }
        }
        Ok(())
    }

    fn entry(&mut self, dir: &OwnedFd, name: &[u8], path: &str) -> Entry {
        let data = match stat(dir.as_fd(), name) {
            Ok(data) => data,
            Err(errno) => {
                return Entry {
                    unreadable: Some(reason(&errno)),
                    ..Entry::bare(FileKind::Unknown)
                };
            }
        };
        if data.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return Entry::bare(FileKind::Mount);
        }
        let mut entry = self.describe(&data);
        if data.stx_nlink > 1 && entry.kind != FileKind::Directory {
            self.paths.entry(inode(&data)).or_default().push(path.to_owned());
        }
        self.note(&mut entry, |scan, entry| {
            // Unlike a path from the root, this path cannot be too long. A symbolic link in
            // the last component is not followed.
            let mut link = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
            link.extend_from_slice(name);
            entry.xattrs = scan.xattrs(&*link)?;
            Ok(())
        });
        self.note(&mut entry, |scan, entry| match entry.kind {
            FileKind::File => {
                entry.sha256 = Some(scan.content(dir, name, &data)?);
                Ok(())
            }
            FileKind::Symlink => {
                entry.target = Some(escape(readlinkat(dir, name, Vec::new())?.as_bytes()));
                Ok(())
            }
            FileKind::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                scan.directory(&openat(dir, name, flags, Mode::empty())?, &format!("{path}/"))
            }
            _ => Ok(()),
        });
        entry
    }

    fn describe(&self, data: &Statx) -> Entry {
        let mode = u32::from(data.stx_mode);
        let mut entry = Entry::bare(kind(mode));
        entry.mode = mode & 0o7777;
        (entry.uid, entry.gid) = (data.stx_uid, data.stx_gid);
        entry.size = (entry.kind == FileKind::File).then_some(data.stx_size);
        let device = matches!(entry.kind, FileKind::CharDevice | FileKind::BlockDevice);
        entry.rdev = device.then_some((data.stx_rdev_major, data.stx_rdev_minor));
        entry.mtime =
            self.options.wants_mtimes().then_some((data.stx_mtime.tv_sec, data.stx_mtime.tv_nsec));
        entry
    }

    /// Runs a step for an entry, and notes an error of the step in the entry.
    fn note(
        &mut self,
        entry: &mut Entry,
        part: impl FnOnce(&mut Self, &mut Entry) -> io::Result<()>,
    ) {
        if let Err(error) = part(self, entry) {
            entry.unreadable.get_or_insert_with(|| error.to_string());
        }
    }

    fn content(&mut self, dir: &OwnedFd, name: &[u8], data: &Statx) -> io::Result<String> {
        let inode = inode(data);
        if let Some(hash) = self.hashes.get(&inode) {
            return Ok(hash.clone());
        }
        let mut file = open_file(dir, name)?;
        let mut hasher = Sha256::new();
        loop {
            match file.read(&mut self.buffer)? {
                0 => break,
                length => hasher.update(&self.buffer[..length]),
            }
        }
        let hash = format!("{:x}", hasher.finalize());
        if data.stx_nlink > 1 {
            self.hashes.insert(inode, hash.clone());
        }
        Ok(hash)
    }

    fn xattrs<P: rustix::path::Arg + Copy>(
        &mut self,
        path: P,
    ) -> io::Result<BTreeMap<String, String>> {
        // 64 KiB, the buffer's size, is the kernel's limit for the list and for a value
        // (xattr(7)).
        let length = match rustix::fs::llistxattr(path, &mut self.buffer[..]) {
            Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
            result => result?,
        };
        let names: Vec<Vec<u8>> =
            self.buffer[..length].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        let mut xattrs = BTreeMap::new();
        for name in names.iter().filter(|name| !name.is_empty()) {
            let length = rustix::fs::lgetxattr(path, &**name, &mut self.buffer[..])?;
            xattrs.insert(escape(name), escape(&self.buffer[..length]));
        }
        Ok(xattrs)
    }

    fn finish(mut self) -> Manifest {
        for paths in self.paths.into_values().filter(|paths| paths.len() > 1) {
            let first = paths.iter().min().cloned();
            for path in paths {
                if let Some(entry) = self.entries.get_mut(&path) {
                    entry.links.clone_from(&first);
                }
            }
        }
        Manifest { entries: self.entries }
    }
}

impl Entry {
    fn bare(kind: FileKind) -> Self {
        Self {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            size: None,
            sha256: None,
            target: None,
            rdev: None,
            links: None,
            xattrs: BTreeMap::new(),
            mtime: None,
            unreadable: None,
        }
    }
}

fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    statx(dir, name, flags, StatxFlags::BASIC_STATS)
}

/// Opens a file, without an update of its access time where the kernel permits it.
fn open_file(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<File> {
    // The open must not block if the file has become a named pipe since its stat.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(dir, name, flags, Mode::empty()),
        result => result,
    }
    .map(File::from)
}

fn inode(data: &Statx) -> Inode {
    (data.stx_dev_major, data.stx_dev_minor, data.stx_ino)
}

fn reason(errno: &Errno) -> String {
    io::Error::from(*errno).to_string()
}

fn kind(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::Unknown => FileKind::Unknown,
    }
}
