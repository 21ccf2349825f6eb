//! How often a sync of the store has failed.
//!
//! The kernel reports a lost write once (syncfs(2)), so the next commit would succeed, also that of
//! another tree whose changes are lost. Each session and each note of uncommitted changes has the
//! number of failures before it; a commit with another number is refused. The changes do not survive
//! a boot, and neither need the number.

use super::{Store, encode, read, write_lightly};
use std::io::ErrorKind;
use std::path::PathBuf;
use synconce_durable::error::Error;

/// The file with the number. None in a store that had no failure.
const LOSSES: &str = "losses.json";

impl Store {
    fn losses_path(&self) -> PathBuf {
        self.path().join(LOSSES)
    }

    /// Returns the number of failed syncs.
    ///
    /// # Errors
    /// Names the file that cannot be read. One that a power failure damaged is no error.
    pub(crate) fn losses(&self) -> Result<u64, Error> {
        match read::<u64>(&self.losses_path()) {
            Err(error) if error.io().kind() == ErrorKind::InvalidData => Ok(0),
            number => Ok(number?.unwrap_or(0)),
        }
    }

    /// Notes that a sync has failed.
    ///
    /// # Errors
    /// Names the act and the file: the disk may be full or read-only.
    pub(crate) fn note_loss(&self) -> Result<(), Error> {
        let path = self.losses_path();
        write_lightly(&path, &encode(&(self.losses()? + 1), &path)?)
    }
}
