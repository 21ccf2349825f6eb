//! Pins the store's file system, to sync it once.

use crate::store::{Store, open_directory};
use rustix::fs::syncfs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use synconce_durable::commit::{self, FileSystemOutcome};
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_durable::pins::{self, Pins};
use synconce_probe::mounts;

/// How long the device may transfer no data before the sync is given up.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 120 });
/// The act of a sync before a commit.
pub(crate) const TO_COMMIT: &str = "cannot commit, sync of the file system of";
/// The act of a sync after which btrfs's number can be compared.
pub(crate) const TO_COMPARE: &str = "cannot sync the file system of";

/// Descriptors that were opened before the first write, so that they report every write-back
/// error (`syncfs(2)`, Linux 5.8).
#[derive(Debug)]
pub(crate) struct Pin {
    path: PathBuf,
    pins: Result<Pins, OwnedFd>,
}

impl Pin {
    pub(crate) fn new(path: &Path) -> Result<Self, Error> {
        let mounts = mounts::ours().on("cannot read the mounts for", path)?;
        let mount = pins::mount_of(path, &mounts).ok().filter(|mount| mount.kind().is_held());
        let pins = match mount {
            Some(mount) if mount.writable => Ok(Pins::open_only(&[path.to_owned()], &mounts)?),
            // Another mount of the file system may be writable.
            Some(mount) => {
                let mut pins = Pins::default();
                pins.adopt(mount, open_directory(path)?);
                Ok(pins)
            }
            // tmpfs, or a file system whose server alone can sync it.
            None => Err(open_directory(path)?),
        };
        Ok(Self { path: path.to_owned(), pins })
    }

    /// Syncs the file system of `store`. The first error is final. Notes a lost write for the
    /// commits to come: see [`Store::note_loss`].
    ///
    /// # Errors
    /// The error names `act` and the path.
    pub(crate) fn sync(self, store: &Store, act: &'static str) -> Result<(), Error> {
        if mutant::is("tree-unsynced") {
            return Ok(());
        }
        // The failure matters more; on a read-only disk a note is impossible.
        let note = || drop(store.note_loss());
        let pins = match self.pins {
            Ok(pins) => pins,
            Err(directory) => {
                return syncfs(&directory).on(act, &self.path).inspect_err(|_| note());
            }
        };
        let report = commit::commit(pins, None, PATIENCE, &mut |_| {});
        let failed = |outcome: FileSystemOutcome| outcome.result.err();
        let Some(failure) = report.file_systems.into_iter().find_map(failed) else {
            return Ok(());
        };
        if failure.may_hide_a_loss() {
            note();
        }
        Err(Error::new(act, &self.path, io::Error::new(failure.kind(), failure.to_string())))
    }
}
