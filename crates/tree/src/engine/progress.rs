//! How far a walk is, and whether it is to go on.

use std::path::Path;

use rustix::io::Errno;

use super::Error;
pub use crate::progress::Progress;

/// What one thread has done and not yet told.
pub(super) struct Tally<'a> {
    progress: &'a dyn Progress,
    act: &'static str,
    untold: (u64, u64),
    total: (u64, u64),
}

/// So many entries may pass before a cancelled walk notices.
const ENTRIES: u64 = 64;

/// So many bytes may pass.
const BYTES: u64 = 8 << 20;

impl<'a> Tally<'a> {
    /// `act` is what an error says when the walk is cancelled: "cannot copy".
    pub fn new(progress: &'a dyn Progress, act: &'static str) -> Self {
        Self { progress, act, untold: (0, 0), total: (0, 0) }
    }

    /// One more entry.
    pub fn entry(&mut self) -> Result<(), Error> {
        self.untold.0 += 1;
        if self.untold.0 >= ENTRIES { self.tell() } else { Ok(()) }
    }

    /// More bytes of a file.
    pub fn bytes(&mut self, bytes: u64) -> Result<(), Error> {
        self.untold.1 += bytes;
        if self.untold.1 >= BYTES { self.tell() } else { Ok(()) }
    }

    /// Everything: entries and bytes.
    pub fn total(&mut self) -> (u64, u64) {
        self.hand_over();
        self.total
    }

    fn hand_over(&mut self) {
        let (entries, bytes) = std::mem::take(&mut self.untold);
        self.total = (self.total.0 + entries, self.total.1 + bytes);
        if (entries, bytes) != (0, 0) {
            self.progress.add(entries, bytes);
        }
    }

    fn tell(&mut self) -> Result<(), Error> {
        self.hand_over();
        if self.progress.cancelled() {
            return Err(Error::new(self.act, Path::new("the rest of the tree"), Errno::CANCELED));
        }
        Ok(())
    }
}
