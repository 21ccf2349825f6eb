//! Pins the store's file system, to sync it once.

use crate::store::open_directory;
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

/// How long the device may complete no request before the sync is given up.
const PATIENCE: Duration = Duration::from_secs(120);

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
        let is_disk = pins::mount_of(path, &mounts).is_ok_and(|mount| mount.kind().is_held());
        let pins = if is_disk {
            Ok(Pins::open_only(&[path.to_owned()], &mounts)?)
        } else {
            // tmpfs, or a file system whose server alone can sync it.
            Err(open_directory(path)?)
        };
        Ok(Self { path: path.to_owned(), pins })
    }

    /// Syncs the file system. The first error is final.
    pub(crate) fn sync(self) -> Result<(), Error> {
        if mutant::is("tree-unsynced") {
            return Ok(());
        }
        let act = "cannot commit, sync of the file system of";
        let pins = match self.pins {
            Ok(pins) => pins,
            Err(directory) => return syncfs(&directory).on(act, &self.path),
        };
        let failed = |outcome: FileSystemOutcome| {
            let failure = outcome.result.err()?;
            Some(Error::new(act, &outcome.point, io::Error::other(failure.to_string())))
        };
        let report = commit::commit(pins, None, PATIENCE, &mut |_| {});
        report.file_systems.into_iter().find_map(failed).map_or(Ok(()), Err)
    }
}
