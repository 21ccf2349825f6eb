//! Shows the progress of an examination, and can end it.

use crate::error::Error;
use std::path::Path;

/// Gets the progress of an examination, and can end the examination.
pub trait Observer {
    /// Temporary files of at most `bytes` will be written in `directory`.
    fn will_write(&mut self, bytes: u64, directory: &Path);
    /// The measurement of `what` begins.
    fn begins(&mut self, what: &str);
    /// Returns the signal that ends the examination, if one has arrived.
    fn interrupted(&self) -> Option<i32>;
}

/// An observer of tests: shows nothing, and reports its signal.
#[cfg(test)]
pub(crate) struct SilentObserver(pub Option<i32>);

#[cfg(test)]
impl Observer for SilentObserver {
    fn will_write(&mut self, _: u64, _: &Path) {}
    fn begins(&mut self, _: &str) {}
    fn interrupted(&self) -> Option<i32> {
        self.0
    }
}

/// Fails if a signal has arrived.
pub(crate) fn check(observer: &dyn Observer) -> Result<(), Error> {
    observer.interrupted().map_or(Ok(()), |signal| Err(Error::Interrupted(signal)))
}
