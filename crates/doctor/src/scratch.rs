//! The temporary directory of an examination.

use crate::error::Error;
use rustix::fs::{Access, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use synconce_sys::directory::is_empty;

/// The start of its name.
const PREFIX: &str = ".synconce-doctor-";
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory with all temporary files. Its drop removes it.
///
/// The place can belong to another user than root, who can rename the directory and put a link
/// there. So files are made by descriptors, and only new ones.
pub(crate) struct Scratch {
    directory: ScratchDirectory,
    place: OwnedFd,
    name: String,
    is_removed: bool,
}

/// An open directory of temporary files.
pub(crate) struct ScratchDirectory {
    handle: OwnedFd,
    path: PathBuf,
}

impl Scratch {
    /// Makes the directory in `place`.
    pub(crate) fn new(place: &Path) -> Result<Self, Error> {
        let failed = || Error::io("write in", place);
        rustix::fs::access(place, Access::WRITE_OK | Access::EXEC_OK).map_err(failed())?;
        // Serves calls with names only, which need no permission to read.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let place_handle = rustix::fs::open(place, flags, Mode::empty()).map_err(failed())?;
        let name = format!("{PREFIX}{:016x}", fastrand::u64(..));
        let at = (place_handle.as_fd(), place);
        let directory = ScratchDirectory::make_in(at, &name).map_err(failed())?;
        Ok(Self { directory, place: place_handle, name, is_removed: false })
    }

    /// Returns the directory itself.
    pub(crate) fn directory(&self) -> &ScratchDirectory {
        &self.directory
    }

    /// Removes the directory.
    ///
    /// # Errors
    /// It stays, and its path.
    pub(crate) fn remove(mut self) -> Result<(), Error> {
        self.try_remove().map_err(Error::io("remove", &self.directory.path))?;
        self.is_removed = true;
        Ok(())
    }

    fn try_remove(&self) -> io::Result<()> {
        self.directory.empty()?;
        Ok(rustix::fs::unlinkat(&self.place, &self.name, AtFlags::REMOVEDIR)?)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_removed {
            // After a failure or a signal.
            let _ = self.try_remove();
        }
    }
}

impl ScratchDirectory {
    fn make_in(at: (BorrowedFd<'_>, &Path), name: &str) -> Result<Self, Errno> {
        rustix::fs::mkdirat(at.0, name, Mode::RWXU)?;
        let opened = rustix::fs::openat(at.0, name, OPEN | OFlags::NOFOLLOW, Mode::empty());
        let handle = opened.inspect_err(|_| {
            let _ = rustix::fs::unlinkat(at.0, name, AtFlags::REMOVEDIR);
        })?;
        // Another user may have put a full directory there.
        if !is_empty(&handle)? {
            return Err(Errno::EXIST);
        }
        Ok(Self { handle, path: at.1.join(name) })
    }

    /// Makes the directory `name`.
    pub(crate) fn make(&self, name: &str) -> Result<Self, Errno> {
        Self::make_in((self.as_fd(), &self.path), name)
    }

    /// Makes the file `name`, and opens it to write, also with the flags `more`.
    pub(crate) fn create(&self, name: &str, more: OFlags) -> Result<File, Errno> {
        create(self.as_fd(), name, more)
    }

    /// Returns the path of `name`, for messages.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn entries(&self) -> io::Result<fs::ReadDir> {
        fs::read_dir(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }

    /// Removes all entries.
    fn empty(&self) -> io::Result<()> {
        self.entries()?.try_for_each(|entry| {
            let entry = entry?;
            let is_directory = entry.file_type()?.is_dir();
            if is_directory {
                fs::remove_dir_all(entry.path())
            } else {
                fs::remove_file(entry.path())
            }
        })
    }
}

impl AsFd for ScratchDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Makes the file `name` in `directory`, and opens it to write, also with the flags `more`.
pub(crate) fn create(directory: BorrowedFd<'_>, name: &str, more: OFlags) -> Result<File, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | more;
    let mode = Mode::from_raw_mode(0o666);
    rustix::fs::openat(directory, name, flags, mode).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Uid, geteuid};
    use rustix::thread::set_thread_res_uid;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_place_need_not_be_readable() {
        let place = tempfile::tempdir().unwrap();
        let drop_box = place.path().join("drop-box");
        fs::create_dir(&drop_box).unwrap();
        for (path, mode) in [(place.path(), 0o711), (&drop_box, 0o333)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        // On a thread with credentials of its own: root may read every directory.
        std::thread::scope(|scope| {
            let examines = || {
                if geteuid().is_root() {
                    let user = Uid::from_raw(12_345);
                    set_thread_res_uid(user, user, user).unwrap();
                }
                Scratch::new(&drop_box).unwrap().remove().unwrap();
            };
            scope.spawn(examines).join().unwrap();
        });
    }
}
