//! Progress and cancellation of a walk.

use std::path::Path;

use rustix::io::Errno;

use super::Error;
use crate::Progress;

/// Counts what one thread has done, and reports in batches.
pub(crate) struct Tally<'a> {
    progress: &'a dyn Progress,
    act: &'static str,
    untold: (u64, u64),
    total: (u64, u64),
}

/// The number of entries between two checks for cancellation.
const ENTRIES: u64 = 64;

/// The number of bytes between two checks.
const BYTES: u64 = 8 << 20;

impl<'a> Tally<'a> {
    /// `act` begins the error of a cancelled walk: "cannot copy".
    pub fn new(progress: &'a dyn Progress, act: &'static str) -> Self {
        Self { progress, act, untold: (0, 0), total: (0, 0) }
    }

    /// Counts an entry.
    pub fn entry(&mut self) -> Result<(), Error> {
        self.untold.0 += 1;
        if self.untold.0 >= ENTRIES { self.tell() } else { Ok(()) }
    }

    /// Counts bytes of a file.
    pub fn bytes(&mut self, bytes: u64) -> Result<(), Error> {
        self.untold.1 += bytes;
        if self.untold.1 >= BYTES { self.tell() } else { Ok(()) }
    }

    /// Reports the rest, and returns all entries and bytes.
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
