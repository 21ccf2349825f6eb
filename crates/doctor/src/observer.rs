//! Shows the progress of an examination, and can end it.

use crate::error::Error;
use std::path::Path;

/// What is told about the examination while it goes on, and asked whether it goes on.
pub trait Observer {
    /// Temporary files of at most `bytes` will be written in `directory`.
    fn will_write(&mut self, bytes: u64, directory: &Path);
    /// The measurement of `what` begins.
    fn begins(&mut self, what: &str);
    /// Returns the signal that ends the examination, if one has arrived.
    fn interrupted(&self) -> Option<i32>;
}

/// Fails if a signal has arrived.
pub(crate) fn check(observer: &dyn Observer) -> Result<(), Error> {
    observer.interrupted().map_or(Ok(()), |signal| Err(Error::Interrupted(signal)))
}
