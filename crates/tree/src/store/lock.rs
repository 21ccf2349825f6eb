//! The lock under which records change.

use super::Store;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;

const LOCK: &str = "lock";

/// The exclusive lock for changes of records; it ends with its process. It is held for a few
/// small writes, never while data is copied or synced.
#[derive(Debug)]
pub(crate) struct Lock {
    /// flock(2) locks until it is closed.
    _file: OwnedFd,
}

impl Store {
    /// Waits for the lock.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        self.lock_by(OFlags::RDWR | OFlags::CREATE)
    }

    /// Waits for the lock, to read several records as of one moment. Returns `None` on a
    /// read-only file system where the lock file was never made.
    pub(crate) fn lock_to_read(&self) -> Result<Option<Lock>, Error> {
        match self.lock() {
            Err(error) if error.io().kind() == io::ErrorKind::ReadOnlyFilesystem => {}
            other => return other.map(Some),
        }
        match self.lock_by(OFlags::RDONLY) {
            Err(error) if error.io().kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    fn lock_by(&self, flags: OFlags) -> Result<Lock, Error> {
        let path = self.path().join(LOCK);
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
        let file = opened.on("cannot open", &path)?;
        if mutant::is("tree-unlocked") {
            return Ok(Lock { _file: file });
        }
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                other => return other.on("cannot lock", &path).map(|()| Lock { _file: file }),
            }
        }
    }
}

/// Returns whether a process has the lease of `directory`. The check takes a shared lock, so two
/// processes that check at the same time do not find each other's lock.
pub(crate) fn is_leased(directory: &OwnedFd, path: &Path) -> Result<bool, Error> {
    try_flock(directory, FlockOperation::NonBlockingLockShared, path).map(|locked| !locked)
}

/// Locks `directory` exclusively, unless another process has a lock on it. Returns whether it
/// is locked.
pub(crate) fn try_lock(directory: &OwnedFd, path: &Path) -> Result<bool, Error> {
    try_flock(directory, FlockOperation::NonBlockingLockExclusive, path)
}

/// Takes the lease of `directory`, unless another process has it.
pub(crate) fn try_lease(directory: OwnedFd, path: &Path) -> Result<Option<OwnedFd>, Error> {
    Ok(try_lock(&directory, path)?.then_some(directory))
}

fn try_flock(directory: &OwnedFd, operation: FlockOperation, path: &Path) -> Result<bool, Error> {
    match flock(directory, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(Error::new("cannot lock", path, errno)),
    }
}
