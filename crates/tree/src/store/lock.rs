//! The lock under which records change.

use super::Store;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use synconce_durable::error::{Context, Error};

const LOCK: &str = "lock";

/// Whoever has it may change records; it ends with its process. Held for the time of
/// a few small writes, never while data is copied or synced.
#[derive(Debug)]
pub(crate) struct Lock(#[allow(dead_code, reason = "the lock is the descriptor's")] OwnedFd);

impl Store {
    /// Waits for the lock.
    ///
    /// # Errors
    /// Names the act and path.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        let path = self.path().join(LOCK);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file =
            rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).on("cannot open", &path)?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                other => return other.on("cannot lock", &path).map(|()| Lock(file)),
            }
        }
    }
}

/// Takes the lease of `directory` if nobody has it.
///
/// # Errors
/// Names the act and path.
pub(crate) fn try_lease(directory: OwnedFd, path: &Path) -> Result<Option<OwnedFd>, Error> {
    match flock(directory.as_fd(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(directory)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(Error::new("cannot lock", path, errno)),
    }
}
