//! What a copy was like.

use std::path::PathBuf;

/// What was copied, and what is to be known about it. Paths begin below the source; `.` is
/// the source itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReport {
    /// Files of all kinds and directories, the root among them.
    pub entries: u64,
    /// Bytes of content, without holes; shared ones, too.
    pub bytes: u64,
    /// Files that share their content with the source.
    pub reflinked: u64,
    /// What is mounted there was not copied.
    pub mounts: Vec<PathBuf>,
    /// Changed while they were read, or gone when they were to be: the copy may be neither
    /// what was there before nor what is there now.
    pub changed: Vec<PathBuf>,
    /// Immutable or append-only in the source, which the copy is not.
    pub flagged: Vec<PathBuf>,
}

impl CopyReport {
    pub(super) fn join(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes += other.bytes;
        self.reflinked += other.reflinked;
        self.mounts.extend(other.mounts);
        self.changed.extend(other.changed);
        self.flagged.extend(other.flagged);
    }

    /// In an order that does not depend on the threads.
    pub(super) fn sort(&mut self) {
        for paths in [&mut self.mounts, &mut self.changed, &mut self.flagged] {
            paths.sort_unstable();
            paths.dedup();
        }
    }
}
