//! The lock under which one set-up or undo at a time changes the files of a system.

use crate::error::Error;
use crate::host::Host;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error as Failed};
use synconce_durable::standard_paths;

/// The lock of a system, until it is dropped. The lock is a file of its own: every user can lock
/// the root directory, and so keep root waiting. A set-up inside a chroot has another lock file, so
/// it does not wait for a set-up of the chroot from outside.
#[derive(Debug)]
pub struct SystemLock {
    path: PathBuf,
    _file: File,
}

impl SystemLock {
    /// Waits until no other set-up or undo changes the system of `host`. Calls `on_wait` once
    /// before it waits. Returns `None` if there is no directory of run files in memory that this
    /// process may write to, as for some users, services and image builds. The set-up is then made
    /// without a lock.
    ///
    /// # Errors
    /// The lock file cannot be made or locked.
    pub fn take(host: &Host, on_wait: &dyn Fn()) -> Result<Option<Self>, Error> {
        let directory =
            standard_paths::runtime().filter(|it| standard_paths::may_hold_run_files(it));
        let Some(directory) = directory else { return Ok(None) };
        match standard_paths::make_runtime(&directory) {
            Err(error) if is_refused(error.kind()) => return Ok(None),
            made => made.on("cannot create", &directory)?,
        }
        let root = host.real(Path::new("/"));
        let system = root.metadata().on("cannot look at", &root)?;
        let path = directory.join(format!("setup-{}-{}.lock", system.dev(), system.ino()));
        let mut has_waited = false;
        loop {
            let file = match open(&path) {
                Err(error) if is_refused(error.io().kind()) => return Ok(None),
                opened => opened?,
            };
            let mut locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            if locked == Err(Errno::WOULDBLOCK) {
                if !has_waited {
                    on_wait();
                    has_waited = true;
                }
                locked = retry_on_intr(|| flock(&file, FlockOperation::LockExclusive));
            }
            locked.on("cannot lock", &path)?;
            // The last owner has removed the file: the next one locks another file of this name.
            let named = fs::symlink_metadata(&path).ok().map(|named| named.ino());
            if named == Some(file.metadata().on("cannot look at", &path)?.ino()) {
                return Ok(Some(Self { path, _file: file }));
            }
        }
    }
}

/// Whether `kind` is of a directory that this process may not write to, as the `/run` of a service
/// with `ProtectSystem=strict`.
fn is_refused(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Opens the file to lock, which only its owner may open.
fn open(path: &Path) -> Result<File, Failed> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path).on("cannot open", path)
}

impl Drop for SystemLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
