//! The disks that a run commits because they are bound into its tree.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use synconce_durable::pins;
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts;

/// Returns paths on the disk file systems at and below `sources`, which are bound with what is mounted
/// below them. Memory and devices have nothing to commit. Leaves out overlays below them, such as the
/// roots of containers, and what this user cannot open: syncs there are real.
pub(super) fn disks_of<'a>(sources: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mounts = mounts::ours().unwrap_or_default();
    let mount_of = |path: &Path| pins::mount_of(path, &mounts).ok();
    let (mut found, mut below) = (Vec::new(), Vec::new());
    for source in sources {
        if mount_of(source).is_some_and(|mount| mount.kind().is_held()) {
            found.push(source.to_owned());
        }
        let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        below.extend(mounts.iter().filter(|mount| {
            let is_disk = mount.writable && matches!(mount.kind(), SyncKind::Disk { .. });
            is_disk && mount.point != source && mount.point.starts_with(&source)
        }));
    }
    let mut devices: HashSet<_> =
        found.iter().filter_map(|path| mount_of(path)).map(|mount| mount.device).collect();
    below.retain(|mount| {
        // Another mount may cover the mount point.
        let is_seen = mount_of(&mount.point).is_some_and(|seen| seen.id == mount.id);
        is_seen && File::open(&mount.point).is_ok() && devices.insert(mount.device)
    });
    found.extend(below.into_iter().map(|mount| mount.point.clone()));
    found
}
