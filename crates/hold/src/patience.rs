//! How long a verb waits for others.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a verb waits for processes that have held files open.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it waits between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until `holds` returns true, for at most [`PATIENCE`], and returns whether it did. A
/// program that reads the files for a moment, such as a backup, must not make the stop fail: at
/// a shutdown nothing would try again, and the next boot would find the hold interrupted.
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
