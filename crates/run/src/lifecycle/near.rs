//! The file systems on which nearly every run writes. They are pinned before the command starts:
//! a descriptor that is opened later may miss a write-back error (fsync(2)).

use crate::options::RunOptions;
use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use synconce_durable::pins::{mount_of, uppers_of};
use synconce_durable::standard_paths;
use synconce_probe::filesystem::SyncKind;
use synconce_probe::mounts::{DeviceId, Mount, above, mount_id};
use synconce_sys::process;

/// How many links are followed, as in the kernel (`MAXSYMLINKS`).
const LINKS: usize = 40;

/// Returns the devices of the file systems of /, the working directory, `HOME`, `TMPDIR`,
/// `--root`, the marker and inherited descriptors, and of the upper directories of overlays
/// among them.
pub(super) fn devices(options: &RunOptions, mounts: &[Mount]) -> HashSet<DeviceId> {
    let home = env::var_os("HOME").map(PathBuf::from);
    let temporary = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let named = [home, Some(temporary), standard_paths::state()].into_iter().flatten();
    let named = named.filter_map(|path| above(&without_links(&path, mounts), mounts));
    let places = places_of_work(options, mounts).map(|(_, mount)| mount);
    let near: Vec<&Mount> = places.chain(named).chain(inherited(mounts)).collect();
    let uppers = near.iter().flat_map(|mount| uppers_of(mount, mounts, Path::new("/")));
    near.iter().map(|mount| mount.device).chain(uppers).collect()
}

/// Returns where a run works (/, the working directory and `--root`), each with its mount.
pub(super) fn places_of_work<'a>(
    options: &'a RunOptions,
    mounts: &'a [Mount],
) -> impl Iterator<Item = (&'a Path, &'a Mount)> {
    let places = [Path::new("/"), Path::new(".")].into_iter().chain(options.root.as_deref());
    places.filter_map(|path| Some((path, mount_of(path, mounts).ok()?)))
}

/// Returns `path` with its symbolic links resolved, up to the first name on a file server.
fn without_links(path: &Path, mounts: &[Mount]) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let names = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|name| name.as_os_str().to_owned()).collect()
    };
    let (mut resolved, mut rest, mut links) = (PathBuf::from("/"), names(&path), 0);
    while let Some(name) = rest.pop() {
        let is_served = above(&resolved, mounts)
            .is_some_and(|mount| matches!(mount.kind(), SyncKind::Network | SyncKind::Fuse { .. }));
        if is_served {
            resolved.push(name);
        } else if name == ".." {
            resolved.pop();
        } else {
            resolved.push(name);
            // A mount point is no link, and its server is not asked.
            let is_point = mounts.iter().any(|mount| mount.point == resolved);
            let target = (!is_point && links < LINKS).then(|| resolved.read_link().ok()).flatten();
            if let Some(target) = target {
                links += 1;
                resolved.pop();
                rest.extend(names(&target));
            }
        }
    }
    resolved
}

/// Returns the mounts of the inherited descriptors.
fn inherited(mounts: &[Mount]) -> impl Iterator<Item = &Mount> {
    let ids = process::inherited().into_iter().filter_map(mount_id);
    ids.filter_map(|id| mounts.iter().find(|mount| mount.id == id))
}
