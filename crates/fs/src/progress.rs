//! Progress and cancellation of long work.

/// Receives progress and answers whether to continue; called from several threads.
pub trait Progress: Sync {
    /// Adds to the numbers of finished entries and bytes of content.
    fn add(&self, entries: u64, bytes: u64);

    /// Returns whether the work must end early, with `ECANCELED`; called between entries and
    /// within long files.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Ignores progress and never cancels.
impl Progress for () {
    fn add(&self, _: u64, _: u64) {}
}
