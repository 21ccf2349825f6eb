//! Finds the mount of a directory.

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
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
    /// Mount options followed by those of the file system, separated by commas.
    pub options: String,
}

impl MountProperties {
    /// Returns the mount of a path by its id (statx, Linux 5.8), as the calling thread sees
    /// it.
    pub(crate) fn find(path: &Path) -> Option<Self> {
        let id = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?.stx_mnt_id;
        let mounts = mounts::read("thread-self").ok()?;
        mounts.into_iter().find(|mount| mount.id == id).map(Self::from)
    }
}

impl From<mounts::Mount> for MountProperties {
    fn from(mount: mounts::Mount) -> Self {
        let mut options: Vec<&str> = mount.mount_options.split(',').collect();
        for option in mount.options.split(',') {
            if !option.is_empty() && !options.contains(&option) {
                options.push(option);
            }
        }
        Self { options: options.join(","), kind: mount.type_name, device: mount.source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_both_the_mount_and_its_file_system_is_shown_once() {
        let text = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n";
        let mount = MountProperties::from(mounts::parse(text).remove(0));
        assert_eq!(mount.kind, "ext4");
        assert_eq!(mount.device, "/dev/vda");
        assert_eq!(mount.options, "rw,relatime,discard");
    }

    #[test]
    fn the_root_directory_is_on_some_mount() {
        assert!(MountProperties::find(Path::new("/")).is_some());
    }
}
