//! The file systems on which nearly every run writes. They are pinned before the command
//! starts, so that no error of a write-back goes unseen.

use crate::options::Options;
use std::collections::HashSet;
use std::env;
use std::path::{Path, PathBuf};
use synconce_durable::pins::{mount_id, mount_of, uppers_of};
use synconce_durable::places;
use synconce_probe::mounts::{DeviceId, Mount};
use synconce_sys::process;

/// The devices of the file systems of /, the working directory, `HOME`, `TMPDIR`, `--root`,
/// the marker, and of inherited descriptors; and of what is under those that are overlays.
pub(super) fn devices(options: &Options, mounts: &[Mount]) -> HashSet<DeviceId> {
    let home = env::var_os("HOME").map(PathBuf::from);
    let temporary = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let named = [home, Some(temporary), places::state()].into_iter().flatten();
    let named = named.filter_map(|path| by_name(&path, mounts));
    let places = places_of_work(options, mounts).map(|(_, mount)| mount);
    let near: Vec<&Mount> = places.chain(named).chain(inherited(mounts)).collect();
    let uppers = near.iter().flat_map(|mount| uppers_of(mount, mounts, Path::new("/")));
    near.iter().map(|mount| mount.device).chain(uppers).collect()
}

/// Where a run works: /, the working directory, and `--root`; and the mount of each.
pub(super) fn places_of_work<'a>(
    options: &'a Options,
    mounts: &'a [Mount],
) -> impl Iterator<Item = (&'a Path, &'a Mount)> {
    let places = [Path::new("/"), Path::new(".")].into_iter().chain(options.root.as_deref());
    places.filter_map(|path| Some((path, mount_of(path, mounts).ok()?)))
}

/// The mount of `path` by its name alone: nothing is opened, because a server may hang.
fn by_name<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // Of two at one point the later one is on top.
    above.max_by_key(|mount| mount.point.components().count())
}

/// The mounts of the descriptors that we were given.
fn inherited(mounts: &[Mount]) -> impl Iterator<Item = &Mount> {
    let ids = process::inherited().into_iter().filter_map(mount_id);
    ids.filter_map(|id| mounts.iter().find(|mount| mount.id == id))
}
