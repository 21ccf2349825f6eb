//! How often a sync of the store has failed.
//!
//! The kernel reports a lost write once (syncfs(2)), so the next commit would succeed, also that of
//! another tree whose changes are lost. Each session and each note of uncommitted changes has the
//! number of failures before it, in its boot epoch; a commit after more is refused. The changes do
//! not survive a boot, and neither need the number.
//!
//! The store has the number of its own commits, which every container sees. What other commands met
//! on the same file system is elsewhere ([`failures`]), and so is what the disk had no room to
//! note.

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
