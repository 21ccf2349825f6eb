//! Markers that a power failure removes.

use std::path::{Path, PathBuf};
use synconce_durable::marker::Marker;
use synconce_probe::filesystem::{is_memory_magic, name_of_magic};
use synconce_probe::mounts::{self, mount_id};

/// Returns the directory of the first of `markers`, if all of them are in memory.
pub(super) fn place_in_memory(markers: &[Marker]) -> Option<PathBuf> {
    let first = markers.first().filter(|_| markers.iter().all(is_in_memory))?;
    first.path().parent().map(Path::to_owned)
}

pub(super) fn is_in_memory(marker: &Marker) -> bool {
    let Ok(file) = marker.file() else { return false };
    let magic = rustix::fs::fstatfs(&file).map_or(0, |system| system.f_type as u64);
    if name_of_magic(magic) != Some("overlay") {
        return is_memory_magic(magic);
    }
    // For an overlay only its mount shows the upper file system.
    let (id, mounts) = (mount_id(file), mounts::ours().unwrap_or_default());
    mounts.iter().any(|mount| Some(mount.id) == id && mount.is_in_memory())
}
