//! A walk over the directories below a directory. It has one directory open at a time and uses no
//! long path, because a tree may be of any depth.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};

/// Flags that open a directory and refuse a link to a directory.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// One directory of a walk.
pub(crate) struct Entries<'a> {
    /// The directory.
    pub directory: &'a OwnedFd,
    /// Its entries, without `.` and `..`.
    pub entries: &'a [(CString, FileType)],
    top: &'a Path,
    above: &'a [Level],
}

/// A directory whose subdirectories are being walked.
struct Level {
    name: CString,
    /// The device and the inode number.
    identity: (u64, u64),
    left: Vec<CString>,
}

impl Entries<'_> {
    /// Whether the directory has another device than the first one of the walk: on btrfs each
    /// subvolume has its own.
    pub fn is_of_another_device(&self) -> bool {
        let device = |level: Option<&Level>| level.map(|level| level.identity.0);
        device(self.above.first()) != device(self.above.last())
    }

    /// Returns the path of the entry `name`, or of the directory itself for `.`.
    pub fn path_of(&self, name: &CStr) -> PathBuf {
        let above = self.above.iter().skip(1).map(|level| level.name.as_c_str());
        let names = above.chain([name].into_iter().filter(|name| *name != c"."));
        let names = names.map(|name| OsStr::from_bytes(name.to_bytes()));
        std::iter::once(self.top.as_os_str()).chain(names).collect()
    }
}

/// Calls `visit` for the open directory `top` and for each directory below it, except those that
/// are removed meanwhile.
///
/// # Errors
/// Those of `visit`; otherwise names `top`. `EAGAIN` if a directory was moved meanwhile.
pub(crate) fn walk<E: From<Error>>(
    mut directory: OwnedFd,
    top: &Path,
    mut visit: impl FnMut(&Entries<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut levels = Vec::new();
    let mut name = c".".to_owned();
    loop {
        let entries = list(&directory, top)?;
        let (identity, is_directory) = (identity(&directory, top)?, FileType::is_dir);
        let inner = entries.iter().filter(|(_, kind)| is_directory(*kind));
        let left = inner.map(|(name, _)| name.clone()).collect();
        levels.push(Level { name, identity, left });
        visit(&Entries { directory: &directory, entries: &entries, top, above: &levels })?;
        (name, directory) = loop {
            let Some(level) = levels.last_mut() else { return Ok(()) };
            if let Some(next) = level.left.pop() {
                match open_at(&directory, &next, top) {
                    Err(error) if error.io().kind() == ErrorKind::NotFound => continue,
                    opened => break (next, opened?),
                }
            }
            levels.pop();
            let Some(above) = levels.last() else { return Ok(()) };
            directory = open_at(&directory, c"..", top)?;
            if self::identity(&directory, top)? != above.identity {
                return Err(
                    Error::new("cannot walk, while it is changed,", top, Errno::AGAIN).into()
                );
            }
        };
    }
}

fn open_at(directory: &OwnedFd, name: &CStr, top: &Path) -> Result<OwnedFd, Error> {
    let opened = rustix::fs::openat(directory, name, DIRECTORY, Mode::empty());
    opened.on("cannot open a directory below", top)
}

fn list(directory: &OwnedFd, top: &Path) -> Result<Vec<(CString, FileType)>, Error> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory).on("cannot read a directory below", top)? {
        let entry = entry.on("cannot read a directory below", top)?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => continue,
                    stat => FileType::from_raw_mode(
                        stat.on("cannot look at an entry below", top)?.st_mode,
                    ),
                }
            }
            kind => kind,
        };
        entries.push((name.to_owned(), kind));
    }
    Ok(entries)
}

fn identity(directory: &OwnedFd, top: &Path) -> Result<(u64, u64), Error> {
    let stat = rustix::fs::fstat(directory).on("cannot look at a directory below", top)?;
    Ok((stat.st_dev, stat.st_ino))
}
