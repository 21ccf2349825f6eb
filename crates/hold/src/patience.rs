//! How long a verb waits for others.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a verb waits for processes that have held files open.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it waits between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until `holds` returns true, for at most [`PATIENCE`], and returns whether it did. A
/// program that has files open for a moment, such as a backup, must not make the stop fail. At a
/// shutdown no second stop follows, so the next boot would find an interrupted hold.
pub(crate) fn eventually<E>(mut holds: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    let end = Instant::now() + PATIENCE;
    loop {
        if holds()? {
            return Ok(true);
        }
        if Instant::now() > end {
            return Ok(false);
        }
        sleep(PAUSE);
    }
}
