//! Finds the mount of a directory.

use serde::{Deserialize, Serialize};
use std::path::Path;
use synconce_probe::mounts;

/// The properties of a mount in a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountProperties {
    /// File system type: "ext4".
    pub kind: String,
    /// Source of the mount: "/dev/vda".
    pub device: String,
    /// The options of the mount, then the other options of the file system, separated by commas.
    pub options: String,
}

impl MountProperties {
    /// Returns the mount of a path by the mount's id (statx(2), Linux 5.8), in the mount namespace
    /// of the calling thread.
    pub(crate) fn find(path: &Path) -> Option<Self> {
        let (id, _) = mounts::look(path)?;
        let mount = mounts::read("thread-self").ok()?.into_iter().find(|mount| mount.id == id)?;
        let options = mount.all_options();
        Some(Self { kind: mount.type_name, device: mount.source, options })
    }
}
