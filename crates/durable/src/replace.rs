//! Durable changes of single files, links and directories, also of those that belong to other
//! programs. A crash leaves either the old file or the new file, whole. When a function returns,
//! its change is durable.

use crate::error::{Context, Error};
use crate::{file_system, mutant};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The suffix of the name of an unfinished file. Programs that read a drop-in directory ignore a
/// file with this suffix.
const SUFFIX: &str = ".synconce-new";

/// The mode and owner of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Permission bits, as in `chmod(2)`.
    pub mode: u32,
    /// The user and the group of the file.
    pub owner: (u32, u32),
}

impl Rights {
    /// Returns rights that allow all to read and this user to write.
    pub fn common() -> Self {
        let user = rustix::process::geteuid().as_raw();
        Self { mode: 0o644, owner: (user, rustix::process::getegid().as_raw()) }
    }
}

/// Replaces the file at `path`, which must exist and be no link. The new file gets the old file's
/// owner, mode and, where permitted, extended attributes.
///
/// # Errors
/// Names the act and path. The old file is then intact, or the new file is whole.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), Error> {
    let old = File::open(path).on("cannot open", path)?;
    let metadata = old.metadata().on("cannot look at", path)?;
    write_over(path, content, |new| {
        let owner = (metadata.uid(), metadata.gid());
        let rights = Rights { mode: metadata.mode() & 0o7777, owner };
        give(new, rights)?;
        copy_attributes(&old, new);
        // A copied access list may have changed the mode.
        rustix::fs::fchmod(new, Mode::from_raw_mode(rights.mode))
    })
}

/// Writes a new file with `rights` at `path`. Replaces a file or link there, and follows no link.
/// Nothing of the old file is kept, not its owner or mode either.
///
/// # Errors
/// Names the act and path. An old file is then intact, or the new file is whole.
pub fn write_anew(path: &Path, content: &[u8], rights: Rights) -> Result<(), Error> {
    write_over(path, content, |new| give(new, rights))
}

fn write_over(
    path: &Path,
    content: &[u8],
    set_up: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
) -> Result<(), Error> {
    let place = NameInDirectory::open(path)?;
    place.write(content, set_up)?;
    let (from, to) = (place.temporary(), place.name());
    rustix::fs::renameat(&place.directory, &from, &place.directory, to)
        .map_err(|error| place.give_up(error))
        .on("cannot replace", path)?;
    place.sync()
}

/// Replaces the file at `path` as [`replace`] does, or makes it with `rights`.
///
/// # Errors
/// As for [`replace`] and [`create`].
pub fn write(path: &Path, content: &[u8], rights: Rights) -> Result<(), Error> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => create(path, content, rights),
        _ => replace(path, content),
    }
}

/// Writes a new file with `rights` at `path`.
///
/// # Errors
/// Names the act and path. A file that exists there stays as it is (`EEXIST`).
pub fn create(path: &Path, content: &[u8], rights: Rights) -> Result<(), Error> {
    let place = NameInDirectory::open(path)?;
    place.write(content, |new| give(new, rights))?;
    let (at, from, to) = (&place.directory, place.temporary(), place.name());
    let named = match rustix::fs::renameat_with(at, &from, at, to, RenameFlags::NOREPLACE) {
        // File systems without RENAME_NOREPLACE (rename(2)): link(2) never replaces a file.
        Err(Errno::INVAL | Errno::NOSYS) => {
            let linked = rustix::fs::linkat(at, &from, at, to, AtFlags::empty());
            linked.and_then(|()| rustix::fs::unlinkat(at, &from, AtFlags::empty()))
        }
        other => other,
    };
    named.map_err(|error| place.give_up(error)).on("cannot create", path)?;
    place.sync()
}

/// Makes a symbolic link to `target` at `path`.
///
/// # Errors
/// Names the act and path, also if `path` exists (`EEXIST`).
pub fn link(target: &Path, path: &Path) -> Result<(), Error> {
    let place = NameInDirectory::open(path)?;
    rustix::fs::symlinkat(target, &place.directory, place.name()).on("cannot create", path)?;
    place.sync()
}

/// Makes `path` a hard link to the file `existing`.
///
/// # Errors
/// Names the act and path, also if `path` exists (`EEXIST`).
pub fn hard_link(existing: &Path, path: &Path) -> Result<(), Error> {
    let place = NameInDirectory::open(path)?;
    std::fs::hard_link(existing, path).on("cannot create", path)?;
    place.sync()
}

/// Renames the file `from` to `to`, and replaces a file that is there.
pub fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    let (old, new) = (NameInDirectory::open(from)?, NameInDirectory::open(to)?);
    rustix::fs::renameat(&old.directory, old.name(), &new.directory, new.name())
        .on("cannot replace", to)?;
    // First the new name: a crash between the two syncs must leave the file one of its names.
    new.sync()?;
    old.sync()
}

/// Removes the file or link `path`. A missing file is no error.
pub fn remove(path: &Path) -> Result<(), Error> {
    let place = NameInDirectory::open(path)?;
    match rustix::fs::unlinkat(&place.directory, place.name(), AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        // On a read-only file system, unlink(2) of a missing file also fails with EROFS.
        Err(Errno::ROFS) if !exists(path)? => Ok(()),
        other => other.on("cannot remove", path).and_then(|()| place.sync()),
    }
}

/// Removes the unfinished file of a write of `path` that a crash ended, if there is one.
pub fn remove_unfinished(path: &Path) -> Result<(), Error> {
    if path.parent().is_some_and(Path::is_dir) {
        remove(&path.with_file_name(temporary(path)))
    } else {
        Ok(())
    }
}

/// Whether there is a file of any kind at `path`, a dangling link included.
///
/// # Errors
/// Names the path. An error other than `ENOENT`, as on a failed disk, does not mean "missing".
pub fn exists(path: &Path) -> Result<bool, Error> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        found => found.on("cannot look at", path).map(|_| true),
    }
}

/// Returns the missing directories above `path`, outermost first.
pub fn missing_above(path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    let mut missing: Vec<_> = above.take_while(|above| !above.exists()).map(Into::into).collect();
    missing.reverse();
    missing
}

/// Makes the missing directories above `path`.
///
/// # Errors
/// As for [`make_directory`].
pub fn make_directories_above(path: &Path) -> Result<(), Error> {
    missing_above(path).iter().try_for_each(|missing| make_directory(missing))
}

/// Makes the directory `path`, readable by all. An existing directory stays as it is.
pub fn make_directory(path: &Path) -> Result<(), Error> {
    let mode = Mode::from_raw_mode(0o755);
    let place = NameInDirectory::open(path)?;
    match rustix::fs::mkdirat(&place.directory, place.name(), mode) {
        Err(Errno::EXIST) if path.is_dir() => return Ok(()),
        other => other.on("cannot create", path)?,
    }
    // The user's umask does not apply to this directory.
    let made = File::open(path).on("cannot open", path)?;
    rustix::fs::fchmod(&made, mode).on("cannot set the mode of", path)?;
    made.sync_all().on("cannot sync", path)?;
    place.sync()
}

/// Removes the directory `path` if it is empty.
pub fn remove_directory_if_empty(path: &Path) -> Result<(), Error> {
    if !path.is_dir() {
        return Ok(());
    }
    let place = NameInDirectory::open(path)?;
    match rustix::fs::unlinkat(&place.directory, place.name(), AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(()),
        other => other.on("cannot remove", path).and_then(|()| place.sync()),
    }
}

/// Syncs the directory of `path`, in which another program has changed names.
pub fn sync_directory_of(path: &Path) -> Result<(), Error> {
    NameInDirectory::open(path)?.sync()
}

/// A name in an open directory.
struct NameInDirectory<'a> {
    path: &'a Path,
    directory: OwnedFd,
}

impl<'a> NameInDirectory<'a> {
    fn open(path: &'a Path) -> Result<Self, Error> {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(above, flags, Mode::empty()).on("cannot open", above)?;
        Ok(Self { path, directory })
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn temporary(&self) -> OsString {
        temporary(self.path)
    }

    /// Writes `content` durably to the temporary name.
    fn write(
        &self,
        content: &[u8],
        set_up: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Error> {
        let name = self.temporary();
        // A crash may have left the file of an earlier write.
        let _ = rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // No other user may read the file before it has its final mode and owner.
        let file = rustix::fs::openat(&self.directory, &name, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(file.on("cannot create a file beside", self.path)?);
        // A write removes capabilities from a file (`file_remove_privs`).
        let written = file
            .write_all(content)
            .and_then(|()| set_up(file.as_fd()).map_err(Into::into))
            .and_then(|()| if mutant::is("setup-unsynced") { Ok(()) } else { file.sync_all() });
        written.map_err(|error| self.give_up(error)).on("cannot write", self.path)
    }

    /// Removes the temporary file, and returns `error`.
    fn give_up<E>(&self, error: E) -> E {
        let _ = rustix::fs::unlinkat(&self.directory, self.temporary(), AtFlags::empty());
        error
    }

    fn sync(&self) -> Result<(), Error> {
        if mutant::is("hold-marker-directory-unsynced") || mutant::is("setup-directory-unsynced") {
            return Ok(());
        }
        let synced = file_system::sync_directory(self.directory.as_fd());
        synced.on("cannot sync the directory of", self.path)
    }
}

fn temporary(path: &Path) -> OsString {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(SUFFIX);
    name
}

fn give(file: BorrowedFd<'_>, rights: Rights) -> Result<(), Errno> {
    let own = rustix::fs::fstat(file)?;
    if (own.st_uid, own.st_gid) != rights.owner {
        let (user, group) = rights.owner;
        let ids = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(group));
        rustix::fs::fchown(file, Some(ids.0), Some(ids.1))?;
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(rights.mode))
}

/// Copies extended attributes (access lists, security labels). Ignores errors: not every user may
/// set each of them, and not every file system has them. The file is usable without them.
fn copy_attributes(from: &File, to: BorrowedFd<'_>) {
    let mut names = vec![0_u8; 64 << 10];
    let Ok(length) = rustix::fs::flistxattr(from, &mut names[..]) else { return };
    let mut value = vec![0_u8; 64 << 10];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if let Ok(length) = rustix::fs::fgetxattr(from, name, &mut value[..]) {
            let _ = rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
