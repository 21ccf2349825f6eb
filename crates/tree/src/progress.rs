//! How far a walk over a tree has come, and whether it is still wanted.

/// Told of what was done, and asked whether to go on.
pub trait Progress {
    /// So many more entries and bytes of content are done.
    fn add(&self, entries: u64, bytes: u64);

    /// Whether nobody wants the result any more; asked between entries and in long files.
    fn cancelled(&self) -> bool;
}

/// For whom it is all the same.
impl Progress for () {
    fn add(&self, _entries: u64, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}
