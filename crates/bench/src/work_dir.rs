//! The directory in which a benchmark creates and removes trees.

use crate::mounts::{remove_tree, unmount_below};
use crate::{Error, files};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory's name.
const NAME: &str = "synconce-bench";

/// The types of vfat and exfat (statfs(2)). All their directories have the owner and the mode that
/// the mount gives them, often 0777. There are no links on them.
const WITHOUT_MODES: [i64; 2] = [0x4d44, 0x2011_bab0];

/// A directory on the disk under test. It is locked while it is in use, because two
/// benchmarks on one disk would disturb each other.
pub(crate) struct WorkDir {
    path: PathBuf,
    keep: bool,
    lock: Option<File>,
}

impl WorkDir {
    /// Returns the work directory in a directory.
    pub(crate) fn new(dir: &Path) -> Self {
        let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
        Self { path: dir.join(NAME), keep: false, lock: None }
    }

    /// Like [`WorkDir::new`]; its content stays after the benchmark.
    pub(crate) fn kept(dir: &Path) -> Self {
        let mut work = Self::new(dir);
        work.keep = true;
        work
    }

    /// Returns the directory's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the directory, and removes what an earlier benchmark left in it.
    pub(crate) fn lock_and_clear(&mut self) -> Result<(), Error> {
        self.lock()?;
        self.clear()
    }

    /// Locks the directory and keeps its content.
    pub(crate) fn lock(&mut self) -> Result<(), Error> {
        let dir = self.open()?;
        flock(&dir, FlockOperation::NonBlockingLockExclusive)
            .map_err(Error::io("lock (is another benchmark running?)", &self.path))?;
        self.lock = Some(dir);
        Ok(())
    }

    /// Opens the directory, which is made if it is missing. Its name is known beforehand, and in
    /// `/var/tmp` every user can make it first; root would remove and execute what is there.
    fn open(&self) -> Result<File, Error> {
        let foreign = |reason| Error::Foreign { path: self.path.clone(), reason };
        let above = self.path.parent().unwrap_or(Path::new("/"));
        files::create_dir(above)?;
        let has_modes = rustix::fs::statfs(above)
            .map(|found| !WITHOUT_MODES.contains(&found.f_type))
            .map_err(Error::io("look at the file system of", above))?;
        let mode = fs::metadata(above).map_err(Error::io("stat", above))?.mode();
        if has_modes && mode & 0o1002 == 0o002 {
            return Err(Error::Exposed(above.to_owned()));
        }
        let is_new = match DirBuilder::new().mode(0o755).create(&self.path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            made => made.map(|()| true).map_err(Error::io("create", &self.path))?,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(foreign("it is a symbolic link or no directory"));
            }
            opened => File::from(opened.map_err(Error::io("open", &self.path))?),
        };
        let found = dir.metadata().map_err(Error::io("stat", &self.path))?;
        let is_ours = found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0;
        // A file system can give a new directory another owner or mode, as NFS and ntfs3 do.
        let is_accepted = is_new || is_ours || !has_modes;
        if is_accepted { Ok(dir) } else { Err(foreign("other users can change it")) }
    }

    /// Removes the directory's content.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        // What a benchmark that was killed left mounted.
        unmount_below(&self.path)?;
        for entry in fs::read_dir(&self.path).map_err(Error::io("list", &self.path))? {
            remove_tree(&entry.map_err(Error::io("list", &self.path))?.path())?;
        }
        Ok(())
    }

    /// Unlocks the directory, and removes it unless it is to be kept.
    pub(crate) fn remove(&mut self) -> Result<(), Error> {
        if self.lock.take().is_some() && !self.keep {
            remove_tree(&self.path)?;
        }
        Ok(())
    }
}

/// Returns a name that is unique while the work directory is locked, and that a later
/// benchmark can compute again after this one was killed.
pub(crate) fn unique_name(work_dir: &Path) -> Result<String, Error> {
    let own = fs::metadata(work_dir).map_err(Error::io("stat", work_dir))?;
    Ok(format!("synconce-bench-{:x}-{:x}", own.dev(), own.ino()))
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // After a failure or an interrupt no other code removes the trees.
        let _ = self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    #[test]
    fn a_second_benchmark_in_one_directory_is_refused_while_the_first_is_there() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let mut first = WorkDir::new(dir.path());
        first.lock_and_clear().expect("it is free");
        let refused = WorkDir::new(dir.path()).lock_and_clear().expect_err("it is taken");
        assert!(refused.to_string().contains("is another benchmark running?"), "{refused}");
        assert!(first.path().exists(), "the second removed what it had not taken");
        drop(first);
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn what_an_earlier_benchmark_left_is_removed() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let mut work = WorkDir::new(dir.path());
        let left = work.path().join("root-1/file");
        fs::create_dir_all(&left).expect("a directory can be made");
        let file = work.path().join("file");
        fs::write(&file, "").expect("a file can be made");
        work.lock_and_clear().expect("it is free");
        assert!(!left.exists() && !file.exists());
    }

    #[test]
    fn a_directory_in_which_every_user_can_rename_is_refused_unless_it_is_sticky() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        files::set_mode(dir.path(), 0o777).expect("it is there");
        let refused = WorkDir::new(dir.path()).lock_and_clear().expect_err("it is exposed");
        assert!(refused.to_string().contains("every user can rename"), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
        files::set_mode(dir.path(), 0o1777).expect("it is there");
        WorkDir::new(dir.path()).lock_and_clear().expect("no other user can rename it");
    }

    #[test]
    fn a_directory_that_another_user_can_change_is_refused() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let theirs = dir.path().join("theirs");
        fs::create_dir(&theirs).expect("a directory can be made");
        fs::write(theirs.join("file"), "").expect("a file can be made");
        let mut work = WorkDir::new(dir.path());
        let mut refused = || work.lock_and_clear().expect_err("it is not ours").to_string();
        symlink(&theirs, dir.path().join(NAME)).expect("a link can be made");
        assert!(refused().contains("symbolic link or no directory"), "{}", refused());
        fs::remove_file(dir.path().join(NAME)).expect("it is there");
        fs::rename(&theirs, dir.path().join(NAME)).expect("it is there");
        files::set_mode(&dir.path().join(NAME), 0o777).expect("it is there");
        assert!(refused().contains("other users can change it"), "{}", refused());
        if geteuid().is_root() {
            files::set_mode(&dir.path().join(NAME), 0o755).expect("it is there");
            chown(dir.path().join(NAME), Some(12_345), None).expect("root may change the owner");
            assert!(refused().contains("other users can change it"), "{}", refused());
        }
        assert!(dir.path().join(NAME).join("file").exists());
    }
}
