//! How often a sync of the store has failed.
//!
//! The kernel reports a lost write once (syncfs(2)), so the next commit would succeed, also that of
//! another tree whose changes are lost. Each session and each note of uncommitted changes has, in
//! its boot epoch, the number of failures before its changes began. If the number has grown since,
//! a commit is refused. Uncommitted changes do not survive a boot, so the number need not either.
//!
//! The store has the number of failed syncs of its own commits, which every container sees.
//! Failures of other commands on the same file system are counted elsewhere ([`failures`]). So are
//! failures for which the disk had no room.

use super::Store;
use std::path::PathBuf;
use synconce_durable::error::Error;
use synconce_durable::failures;
use synconce_probe::mounts::Mount;

/// The file with the number: see [`failures`].
const LOSSES: &str = "losses";

impl Store {
    fn losses_path(&self) -> PathBuf {
        self.path().join(LOSSES)
    }

    /// Returns the number of failed syncs of the store, which is on `mount`.
    pub(super) fn losses(&self, mount: Option<&Mount>) -> Result<u64, Error> {
        let elsewhere = mount.map_or(0, |mount| failures::syncs_of(mount.device));
        Ok(failures::count(&self.losses_path())? + elsewhere)
    }

    /// Notes that a sync has failed.
    ///
    /// # Errors
    /// Names the act and the file: the disk may be full or read-only.
    pub(crate) fn note_loss(&self) -> Result<(), Error> {
        failures::add(&self.losses_path())
    }
}
