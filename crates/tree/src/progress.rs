//! How far long work is, and whether it is still wanted.

/// ImportReport of what is done, and asked whether to go on; by several threads.
pub trait Progress: Sync {
    /// So many more entries, and bytes of content, are done.
    fn add(&self, entries: u64, bytes: u64);

    /// Whether the work is to end early, with `ECANCELED`; asked between entries and in
    /// long files.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Nobody listens.
impl Progress for () {
    fn add(&self, _: u64, _: u64) {}
}
