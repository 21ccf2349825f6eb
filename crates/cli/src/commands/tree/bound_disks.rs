//! The disks that a run commits because of what is bound into its tree.

use std::path::{Path, PathBuf};
use synconce_durable::pins;
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts;
use synconce_tree::enter::Bind;

/// Returns the sources of `binds` that are written and on a disk: they outlive a discarded clone.
/// Memory and devices have nothing to commit.
///
/// A disk may be mounted below a bound directory in memory. Its syncs are to be real, as they are
/// below one on a disk. A run that commits nothing would hold them. So `store` is committed then,
/// if it is on a disk.
pub(super) fn disks_of(binds: &[Bind], store: &Path) -> Vec<PathBuf> {
    let mounts = mounts::ours().unwrap_or_default();
    let kind_of = |path: &Path| pins::mount_of(path, &mounts).ok().map(|mount| mount.kind());
    let written = binds.iter().filter(|bind| !bind.read_only).map(|bind| Path::new(&bind.source));
    let (on_disks, elsewhere): (Vec<_>, Vec<_>) =
        written.partition(|source| kind_of(source).is_some_and(|kind| kind.is_held()));
    let is_below = |point: &Path| elsewhere.iter().any(|source| point.starts_with(source));
    let has_disk = || mounts.iter().any(|mount| mount.kind().is_held() && is_below(&mount.point));
    if on_disks.is_empty() && has_disk() && matches!(kind_of(store), Some(SyncKind::Disk { .. })) {
        return vec![store.to_owned()];
    }
    on_disks.into_iter().map(Path::to_owned).collect()
}
