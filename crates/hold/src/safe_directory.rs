//! The directories in which a hold makes, renames and removes files as root.
//!
//! A held path is often in a directory of the daemon's user. That user can put a link, or another
//! directory, in the place of any name there, also between a check and a use. So each verb works on
//! an open directory, follows no link below it, and enters only directories that root made.

mod astray;
mod resolve;

pub use self::astray::{Astray, remedy};
pub(crate) use self::resolve::resolve;

use crate::directories::DIRECTORY;
use crate::file_id::FileId;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::{file_system, mutant};
use synconce_fs::{remove, threads};
use synconce_probe::mounts;
use synconce_sys::overlay::link_to;

/// The directory beside held files in which their overlays have their directories.
pub const SCRATCH: &str = ".synconce-hold";
/// Permission to write, for the group and for others.
const OF_OTHERS: u32 = 0o022;

/// An open directory.
#[derive(Debug)]
pub(crate) struct SafeDirectory {
    /// May be of `O_PATH`, which needs no permission to read.
    directory: OwnedFd,
    path: PathBuf,
}

impl AsFd for SafeDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl SafeDirectory {
    /// Opens the directory `path`, which has no links.
    ///
    /// # Errors
    /// Names the path; [`Astray::Link`] if a part of the path is a link now.
    pub fn open(path: &Path) -> Result<Self, Error> {
        resolve::without_links(path).map(|directory| Self { directory, path: path.to_owned() })
    }

    /// Opens the directory `path` as [`SafeDirectory::open`] does; `None` if it does not exist.
    pub fn open_if_there(path: &Path) -> Result<Option<Self>, Error> {
        if_there(Self::open(path))
    }

    /// Opens the directory to which `path` leads. Creates missing directories with mode 0711, so
    /// that the daemon's user can pass them. Calls `made` for each new directory, with the
    /// directory above it and its name.
    pub fn make_all(path: &Path, mut made: impl FnMut(Self, OsString)) -> Result<Self, Error> {
        let is_missing = |path: &&Path| path.symlink_metadata().is_err();
        let missing: Vec<_> = path.ancestors().take_while(is_missing).collect();
        let above = path.ancestors().nth(missing.len()).unwrap_or(Path::new("/"));
        let mut at = Self::open(&resolve(above)?)?;
        for name in missing.iter().rev().filter_map(|path| path.file_name()) {
            let path = at.path.join(name);
            let mode = Mode::from_raw_mode(0o711);
            rustix::fs::mkdirat(&at, name, mode).on("cannot create", &path)?;
            let directory = at.open_directory(name)?;
            made(std::mem::replace(&mut at, Self { directory, path }), name.to_owned());
        }
        Ok(at)
    }

    /// Returns another descriptor of the directory.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let directory =
            self.directory.try_clone().on("cannot use the descriptor of", &self.path)?;
        Ok(Self { directory, path: self.path.clone() })
    }

    /// Returns the path of the directory, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path to `name` for calls that take no descriptor. The path stays valid if this
    /// directory is renamed.
    pub fn path_to(&self, name: &OsStr) -> PathBuf {
        Path::new(&link_to(self.as_fd())).join(name)
    }

    /// Looks at `name`, and follows no link; `None` if there is no such file.
    pub fn look(&self, name: &OsStr) -> Result<Option<Stat>, Error> {
        let stat = rustix::fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW);
        if_there(stat.on("cannot look at", &self.path.join(name)))
    }

    /// Returns the id of the mount that `name` is on.
    pub fn mount_of(&self, name: &OsStr) -> Result<u64, Error> {
        let file = self.open_file(name, OFlags::PATH)?;
        mounts::id_in_fdinfo(file).on("cannot find the mount of", &self.path.join(name))
    }

    /// Opens `name`, which is no link, with `flags`. Does not wait for the other end of a FIFO.
    pub fn open_file(&self, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Error> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::openat(self, name, flags, mode).on("cannot open", &self.path.join(name))
    }

    /// Opens the directory `name`, of any owner, as [`SafeDirectory::open_directory`] does.
    pub fn below(&self, name: &OsStr) -> Result<Self, Error> {
        Ok(Self { directory: self.open_directory(name)?, path: self.path.join(name) })
    }

    /// Opens the directory `name`, of any owner.
    pub fn open_directory(&self, name: &OsStr) -> Result<OwnedFd, Error> {
        let opened = rustix::fs::openat(self, name, DIRECTORY, Mode::empty());
        opened.on("cannot open", &self.path.join(name))
    }

    /// Opens the directory `name`, which root made and no other user may write to; `None` if it
    /// does not exist.
    ///
    /// # Errors
    /// [`Astray::NotOfRoot`] for anything else of this name.
    pub fn inner(&self, name: &OsStr) -> Result<Option<Self>, Error> {
        let path = self.path.join(name);
        let opened = match rustix::fs::openat(self, name, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Astray::NotOfRoot.on(&path)),
            opened => opened.on("cannot open", &path)?,
        };
        let found = Self { directory: opened, path };
        if found.is_of_root()? { Ok(Some(found)) } else { Err(Astray::NotOfRoot.on(&found.path)) }
    }

    /// Whether the directory is root's, and no other user may write in it.
    pub fn is_of_root(&self) -> Result<bool, Error> {
        let stat = rustix::fs::fstat(self).on("cannot look at", &self.path)?;
        Ok(stat.st_uid == 0 && stat.st_mode & OF_OTHERS == 0)
    }

    /// Opens the directory `name` as [`SafeDirectory::inner`] does. If it has the inode number and
    /// the birth time of `made`, a directory that root created, sets its owner to root again.
    /// Without a birth time the directory is not trusted: inode numbers are reused.
    ///
    /// # Errors
    /// As for [`SafeDirectory::inner`], or names a directory whose owner cannot be set.
    pub fn inner_or_taken_back(
        &self,
        name: &OsStr,
        made: Option<&FileId>,
    ) -> Result<Option<Self>, Error> {
        let error = match self.inner(name) {
            Err(error) if Astray::from_error(&error) == Some(Astray::NotOfRoot) => error,
            inner => return inner,
        };
        let Some(made) = made.filter(|made| made.born.is_some()) else { return Err(error) };
        let Ok(directory) = self.open_directory(name) else { return Err(error) };
        let path = self.path.join(name);
        if FileId::of_open(&directory).on("cannot look at", &path)? != *made {
            return Err(error);
        }
        // Sets the owner first: the former owner could change the mode. The mode also limits access
        // lists.
        let owned = rustix::fs::fchown(&directory, Some(Uid::ROOT), Some(Gid::ROOT));
        owned.on("cannot set the owner of", &path)?;
        rustix::fs::fchmod(&directory, Mode::RWXU).on("cannot set the mode of", &path)?;
        Ok(Some(Self { directory, path }))
    }

    /// Opens the directory `name` as [`SafeDirectory::inner`] does, and makes it if it is missing.
    pub fn make(&self, name: &OsStr) -> Result<Self, Error> {
        let missing = || Error::new("cannot open", &self.path.join(name), Errno::NOENT);
        self.make_unless_removed(name)?.ok_or_else(missing)
    }

    /// Makes the directories `outer` and, in it, `name`. Another hold may have files in this
    /// directory, and remove `outer` as soon as it is empty.
    pub fn make_below(&self, outer: &OsStr, name: &OsStr) -> Result<(Self, Self), Error> {
        loop {
            let above = self.make_unless_removed(outer)?;
            let Some(above) = above else { continue };
            match above.make(name) {
                Err(error) if error.io().kind() == ErrorKind::NotFound => {}
                made => return Ok((above, made?)),
            }
        }
    }

    fn make_unless_removed(&self, name: &OsStr) -> Result<Option<Self>, Error> {
        match rustix::fs::mkdirat(self, name, Mode::RWXU) {
            Err(Errno::EXIST) => {}
            made => made.on("cannot create", &self.path.join(name))?,
        }
        self.inner(name)
    }

    /// Removes `name` with everything below, and crosses no mount. Returns how many entries were
    /// removed.
    ///
    /// # Errors
    /// Names the first entry that stays.
    pub fn remove(&self, name: &OsStr) -> Result<u64, Error> {
        let removed = remove(self.as_fd(), name, threads(), &())?;
        match removed.left.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(removed.entries),
        }
    }

    /// Removes `directory`, which has the name `name` here, with everything below, and crosses no
    /// mount. Another directory that gets the name meanwhile stays, unless it is empty. Returns how
    /// many entries were removed.
    ///
    /// # Errors
    /// As for [`SafeDirectory::remove`].
    pub fn remove_opened(&self, name: &OsStr, directory: &Self) -> Result<u64, Error> {
        let mut entries = 1;
        for entry in directory.names()? {
            entries += directory.remove(&entry)?;
        }
        let removed = rustix::fs::unlinkat(self, name, AtFlags::REMOVEDIR);
        removed.on("cannot remove", &directory.path).map(|()| entries)
    }

    /// Returns the names of the entries.
    pub fn names(&self) -> Result<Vec<OsString>, Error> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self.readable()?).on("cannot read", &self.path)? {
            let entry = entry.on("cannot read", &self.path)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// Refuses this directory if it has an entry that is not in `known`. The user of the directory
    /// above can rename another directory of root to the name of this directory.
    ///
    /// # Errors
    /// [`Astray::NotOfHold`], or names the directory that cannot be read.
    pub fn refuse_entries_except(&self, known: &[&str]) -> Result<(), Error> {
        if self.names()?.iter().all(|name| known.iter().any(|known| name == known)) {
            Ok(())
        } else {
            Err(Astray::NotOfHold.on(&self.path))
        }
    }

    /// Removes the directory `name` if it is empty.
    pub fn remove_if_empty(&self, name: &OsStr) -> Result<(), Error> {
        match rustix::fs::unlinkat(self, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(()),
            other => other.on("cannot remove", &self.path.join(name)),
        }
    }

    /// Syncs the directory.
    pub fn sync(&self) -> Result<(), Error> {
        file_system::sync_directory(self.readable()?.as_fd()).on("cannot sync", &self.path)
    }

    /// Returns a descriptor of the directory that is not of `O_PATH`.
    pub fn readable(&self) -> Result<OwnedFd, Error> {
        rustix::fs::openat(self, c".", DIRECTORY, Mode::empty()).on("cannot open", &self.path)
    }

    /// Refuses this directory if every user may replace its entries: it is writable by all, and not
    /// sticky. Write permission of the daemon's user or group is allowed.
    pub fn refuse_writable_by_all(&self) -> Result<(), Error> {
        let stat = rustix::fs::fstat(self).on("cannot look at", &self.path)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
            Err(Astray::Writable.on(&self.path))
        } else {
            Ok(())
        }
    }
}

impl SafeDirectory {
    /// Refuses `found`, the file `name`, if it has other names and another owner than this
    /// directory: the directory's user may have linked a file of root here (link(2)).
    pub fn refuse_hard_link(&self, name: &OsStr, found: &Stat) -> Result<(), Error> {
        let own = rustix::fs::fstat(self).on("cannot look at", &self.path)?;
        let is_foreign = own.st_uid != 0 && found.st_uid != own.st_uid;
        if is_foreign && found.st_nlink > 1 && !type_of(found).is_dir() {
            Err(Astray::HardLink.on(&self.path.join(name)))
        } else {
            Ok(())
        }
    }
}

/// Syncs the file systems of those `directories` that exist, also after a failure. Calls `on_loss`
/// with each error of a sync before the next sync: the disk lost writes, and the kernel reports
/// them once.
///
/// # Errors
/// Names the first directory that cannot be opened. A disk that was shut down reports the lost
/// writes to each call until it is unmounted.
pub(crate) fn sync_file_systems(
    directories: impl IntoIterator<Item = impl AsRef<Path>>,
    mut on_loss: impl FnMut(Error),
) -> Result<(), Error> {
    let (mut opened, mut late) = (Ok(()), Vec::new());
    for path in directories {
        let path = path.as_ref();
        let open = |path| SafeDirectory::open_if_there(path)?.map(|it| it.readable()).transpose();
        match open(path) {
            Ok(None) => {}
            Ok(Some(directory)) => {
                let synced = file_system::sync(directory.as_fd());
                match synced.on("cannot sync the file system of", path) {
                    Ok(()) => {}
                    Err(error) if mutant::is("hold-loss-noted-late") => late.push(error),
                    Err(error) => on_loss(error),
                }
            }
            Err(error) => opened = opened.and(Err(error)),
        }
    }
    for error in late {
        on_loss(error);
    }
    opened
}

/// Whether `one` and `other` are the same file.
pub(crate) fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Returns the type of the file of `stat`.
pub(crate) fn type_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Turns a missing file into `None`.
pub(crate) fn if_there<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Err(error) if error.io().kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_directory_is_made_while_another_hold_removes_the_one_above() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root makes such directories");
        }
        let place = tempfile::tempdir().unwrap();
        let at = SafeDirectory::open(&place.path().canonicalize().unwrap()).unwrap();
        let (outer, is_over) = (OsStr::new("outer"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    at.remove_if_empty(outer).unwrap();
                }
            });
            for turn in 0..120 {
                let made = at.make_below(outer, OsStr::new("inner"));
                let removed = made.and_then(|(outer, _)| outer.remove(OsStr::new("inner")));
                if let Err(error) = removed {
                    is_over.store(true, Ordering::Relaxed);
                    panic!("{turn}: {error}");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
