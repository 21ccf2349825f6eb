//! The file systems on which nearly every run writes. They are pinned before the command starts:
//! a descriptor that is opened later may miss a write-back error (fsync(2)).

use crate::options::Options;
use std::collections::HashSet;
use std::env;
use std::path::{Path, PathBuf};
use synconce_durable::pins::{mount_id, mount_of, uppers_of};
use synconce_durable::standard_paths;
use synconce_probe::mounts::{DeviceId, Mount};
use synconce_sys::process;

/// Returns the devices of the file systems of /, the working directory, `HOME`, `TMPDIR`,
/// `--root`, the marker and inherited descriptors, and of the upper directories of overlays
/// among them.
pub(super) fn devices(options: &Options, mounts: &[Mount]) -> HashSet<DeviceId> {
    let home = env::var_os("HOME").map(PathBuf::from);
    let temporary = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let named = [home, Some(temporary), standard_paths::state()].into_iter().flatten();
    let named = named.filter_map(|path| by_name(&path, mounts));
    let places = places_of_work(options, mounts).map(|(_, mount)| mount);
    let near: Vec<&Mount> = places.chain(named).chain(inherited(mounts)).collect();
    let uppers = near.iter().flat_map(|mount| uppers_of(mount, mounts, Path::new("/")));
    near.iter().map(|mount| mount.device).chain(uppers).collect()
}

/// Returns where a run works (/, the working directory and `--root`), each with its mount.
pub(super) fn places_of_work<'a>(
    options: &'a Options,
    mounts: &'a [Mount],
) -> impl Iterator<Item = (&'a Path, &'a Mount)> {
    let places = [Path::new("/"), Path::new(".")].into_iter().chain(options.root.as_deref());
    places.filter_map(|path| Some((path, mount_of(path, mounts).ok()?)))
}

/// Returns the mount of `path` by its name alone. Nothing is opened, because a file server may
/// hang.
fn by_name<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // Of two mounts at one point, the later mount is on top.
    above.max_by_key(|mount| mount.point.components().count())
}

/// Returns the mounts of the inherited descriptors.
fn inherited(mounts: &[Mount]) -> impl Iterator<Item = &Mount> {
    let ids = process::inherited().into_iter().filter_map(mount_id);
    ids.filter_map(|id| mounts.iter().find(|mount| mount.id == id))
}
