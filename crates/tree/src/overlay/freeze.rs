//! Completes the upper directory of a mounted overlay, so that it can become a layer.
//!
//! With `index=on`, a hard-linked lower file that was written to has one copy in the upper.
//! The work directory's `index` links that copy to the handle of the lower file. Names that
//! were used through the overlay are hard links to the copy; for the file's other names,
//! overlay consults the index. As a lower layer, the upper has no index: the other names would
//! show the old file again.

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RawDir, Stat, Timespec, Timestamps, UTIME_OMIT, openat,
    statat, utimensat,
};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use synconce_durable::error::{Context, Error};
use synconce_fs::unflag;
use synconce_sys::handle;
use synconce_sys::overlay::place_of;

/// What [`freeze`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frozen {
    /// The number of files with several names that were written to.
    pub files: usize,
    /// The number of their names, which are all in the upper directory now.
    pub names: usize,
}

/// Makes the upper directory of the writable overlay `mount` complete: each name of a file in
/// the index becomes a link to the copy. `upper` and `work` are the overlay's directories.
/// Nothing may write to the mount any more.
///
/// The files' numbers of links are right once the overlay is unmounted and `work` is removed,
/// because the index has one link to each file.
///
/// # Errors
/// The errors of reading the directories and of `utimensat(2)`, such as `ENOSPC`; `ESTALE`
/// when the lower layers are not on the file system of `upper`. The upper must then not become
/// a layer.
pub fn freeze(
    mount: BorrowedFd<'_>,
    upper: BorrowedFd<'_>,
    work: BorrowedFd<'_>,
) -> Result<Frozen, Error> {
    let indexed = indexed(upper, work).on("cannot read the index in", &place_of(work))?;
    if indexed.files == 0 {
        return Ok(Frozen::default());
    }
    let mut linking = Linking { indexed: &indexed, names: 0 };
    let linked = open_directory(mount, c".").and_then(|root| linking.below(root));
    linked.on("cannot link the names of files in the index to", &place_of(upper))?;
    Ok(Frozen { files: indexed.files, names: linking.names })
}

/// The files in the index.
struct Indexed {
    files: usize,
    /// The inode numbers of the lower files. The copies show the same numbers, because overlay
    /// reports the lower file's number for both.
    numbers: HashSet<u64>,
}

fn indexed(upper: BorrowedFd<'_>, work: BorrowedFd<'_>) -> io::Result<Indexed> {
    let mut indexed = Indexed { files: 0, numbers: HashSet::new() };
    let index = match open_directory(work, c"index") {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
            return Ok(indexed);
        }
        other => other?,
    };
    let upper = open_directory(upper, c".")?;
    for entry in Dir::read_from(&index)? {
        let name = entry?.file_name().to_owned();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let data = statat(&index, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
        // Directories are indexed for nfs_export; a file whose names were all removed has a
        // whiteout.
        let kind = FileType::from_raw_mode(data.st_mode);
        if kind == FileType::Directory || (kind == FileType::CharacterDevice && data.st_rdev == 0) {
            continue;
        }
        indexed.files += 1;
        indexed.numbers.insert(number(&upper, &name)?);
    }
    Ok(indexed)
}

/// Returns the inode number of the lower file of an index entry. The entry's name is `struct
/// ovl_fb` in hexadecimal digits (fs/overlayfs/overlayfs.h).
fn number(file_system: &OwnedFd, name: &CStr) -> io::Result<u64> {
    /// Version, magic, length, flags, type, and the file system's UUID.
    const HEADER: usize = 5 + 16;
    const MAGIC: u8 = 0xfb;
    let digits = name.to_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    let bytes = digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<Vec<_>>>();
    let bytes = bytes.filter(|bytes| bytes.len() > HEADER && bytes[..2] == [0, MAGIC]);
    let bytes = bytes.ok_or(io::ErrorKind::InvalidData)?;
    let file = handle::open(file_system.as_fd(), bytes[4], &bytes[HEADER..])?;
    Ok(rustix::fs::fstat(file)?.st_ino)
}

/// The size of a buffer for directory entries; larger directories take several calls.
const BUFFER: usize = 16 * 1024;

struct Linking<'a> {
    indexed: &'a Indexed,
    names: usize,
}

impl Linking<'_> {
    /// Links the names below `root`. One directory is open at a time, at any depth; `..` leads
    /// back, because nothing is renamed here.
    fn below(&mut self, root: OwnedFd) -> io::Result<()> {
        let mut current = root;
        let mut pending = vec![self.directory(&current)?];
        while let Some(names) = pending.last_mut() {
            if let Some(name) = names.pop() {
                current = open_directory(current.as_fd(), &name)?;
                pending.push(self.directory(&current)?);
            } else {
                pending.pop();
                current = open_directory(current.as_fd(), c"..")?;
            }
        }
        Ok(())
    }

    /// Links the names in a directory, and returns the names of its subdirectories.
    fn directory(&mut self, dir: &OwnedFd) -> io::Result<Vec<CString>> {
        let mut directories = Vec::new();
        let mut buffer = Vec::with_capacity(BUFFER);
        // Unlike `Dir`, `RawDir` does not reopen the directory.
        let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if entry.file_type() == FileType::Directory {
                directories.push(name.to_owned());
            } else if self.indexed.numbers.contains(&entry.ino()) {
                link_up(dir, name)?;
                self.names += 1;
            }
        }
        Ok(directories)
    }
}

/// Makes overlay copy up a name, which links the name to the copy, by setting the file's own
/// modification time.
fn link_up(dir: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
    let data = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let set = || utimensat(dir, name, &own_times(&data), AtFlags::SYMLINK_NOFOLLOW);
    match set() {
        // The file is immutable or append-only; a layer does not keep these flags.
        Err(Errno::PERM) if unflag_file(dir, name, &data) => set(),
        result => result,
    }
}

fn unflag_file(dir: &OwnedFd, name: &CStr, data: &Stat) -> bool {
    // Other kinds of files have no flags, and opening them may have side effects.
    FileType::from_raw_mode(data.st_mode) == FileType::RegularFile
        && openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .is_ok_and(|file| unflag(file.as_fd()))
}

/// Returns the times that a change must leave if programs are not to see the change.
pub(crate) fn own_times(data: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: data.st_mtime, tv_nsec: data.st_mtime_nsec as _ },
    }
}

fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}
