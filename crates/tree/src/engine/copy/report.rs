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
    /// Device nodes, which this process may not make (`EPERM`), and so left out.
    pub devices: Vec<PathBuf>,
    /// Without some of their extended attributes, which no other than the root of the first user
    /// namespace can set, or an access list with ids that this one does not know.
    pub attributes: Vec<PathBuf>,
    /// Character devices 0:0, which an overlay that has the copy as a layer takes for
    /// removed files.
    pub whiteouts: Vec<PathBuf>,
    /// Entries whose owner or group the user namespace does not know, and so nobody's in the
    /// copy; also such as are nobody's indeed, which look the same. None outside of one.
    pub nobodys: u64,
}

impl CopyReport {
    pub(super) fn join(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes += other.bytes;
        self.reflinked += other.reflinked;
        self.mounts.extend(other.mounts);
        self.changed.extend(other.changed);
        self.flagged.extend(other.flagged);
        self.devices.extend(other.devices);
        self.attributes.extend(other.attributes);
        self.whiteouts.extend(other.whiteouts);
        self.nobodys += other.nobodys;
    }

    /// In an order that does not depend on the threads.
    pub(super) fn sort(&mut self) {
        let named = [&mut self.mounts, &mut self.changed, &mut self.flagged];
        for paths in
            named.into_iter().chain([&mut self.devices, &mut self.attributes, &mut self.whiteouts])
        {
            paths.sort_unstable();
            paths.dedup();
        }
    }
}
