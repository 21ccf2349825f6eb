//! A record: where the times of a watched command are written.

use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Where the times of a command are written, one JSON object a line.
pub struct Recording {
    writer: Mutex<Box<dyn Write + Send>>,
    began: Instant,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("began", &self.began).finish_non_exhaustive()
    }
}

impl Recording {
    /// Returns a recording of a command that starts now. The supervisor, a process of its own,
    /// writes to its copy of `writer`, and flushes the copy after the last line.
    pub fn to(writer: impl Write + Send + 'static) -> Self {
        Self { writer: Mutex::new(Box::new(writer)), began: Instant::now() }
    }

    /// Writes one line. A disk that is full makes the record incomplete, and its reader says so.
    pub(super) fn write(&self, line: &impl Serialize) {
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        let _ = self.writer().write_all(&text);
    }

    pub(super) fn writer(&self) -> MutexGuard<'_, Box<dyn Write + Send>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the microseconds since the start.
    pub(super) fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
