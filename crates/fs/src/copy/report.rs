//! The report of a copy.

use std::path::PathBuf;

/// What was copied, and what the copy lacks. Paths begin below the source; `.` is the source
/// itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReport {
    /// The number of files of all kinds and directories, the root included.
    pub entries: u64,
    /// Bytes of content without holes, shared ones included.
    pub bytes: u64,
    /// The number of files that share their content with the source.
    pub reflinked: u64,
    /// Mount points whose mounts were not copied.
    pub mounts: Vec<PathBuf>,
    /// Entries that changed or were removed while they were copied: the copy may match neither
    /// the old nor the new state.
    pub changed: Vec<PathBuf>,
    /// Entries that are immutable or append-only in the source; their copies are not.
    pub flagged: Vec<PathBuf>,
    /// Device nodes that were left out because this process may not make them (`EPERM`).
    pub devices: Vec<PathBuf>,
    /// Entries that lack attributes: extended attributes that only root of the initial user
    /// namespace may set, or an access list with ids that are not mapped in this namespace.
    pub attributes: Vec<PathBuf>,
    /// Entries whose attributes of overlays were left out ([`super::OverlayAttributes`]).
    pub overlays: Vec<PathBuf>,
    /// Files and directories that this process may not read (`EACCES`) and that were left out.
    pub unreadable: Vec<PathBuf>,
    /// The directory that was left out as asked, if it is there.
    pub excepted: Vec<PathBuf>,
    /// Character devices 0:0, which an overlay with the copy as a layer would treat as removed
    /// files.
    pub whiteouts: Vec<PathBuf>,
    /// The number of entries that belong to the overflow user or group in the copy. Their owner or
    /// group has no id in the user namespace, or is the overflow id itself: the two cannot be
    /// distinguished. 0 in the initial namespace.
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
        self.overlays.extend(other.overlays);
        self.whiteouts.extend(other.whiteouts);
        self.unreadable.extend(other.unreadable);
        self.excepted.extend(other.excepted);
        self.nobodys += other.nobodys;
    }

    /// Sorts all lists, so that the report does not depend on the threads.
    pub(super) fn sort(&mut self) {
        for paths in [
            &mut self.mounts,
            &mut self.changed,
            &mut self.flagged,
            &mut self.devices,
            &mut self.attributes,
            &mut self.overlays,
            &mut self.whiteouts,
            &mut self.unreadable,
            &mut self.excepted,
        ] {
            paths.sort_unstable();
            paths.dedup();
        }
    }
}
