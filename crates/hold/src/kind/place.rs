//! What is at the path, and on what file system.

use super::content::Contents;
use super::found::{DatabaseFile, kind_of};
use super::layer;
use super::refusal::{Refusal, RefusalReason};
use crate::config::{Held, HeldKind};
use std::fs::{self, FileType};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use synconce_probe::filesystem::SyncKind as FileSystem;
use synconce_probe::mounts::{self, Mount};

/// Checks the path, its mounts and its file system. Returns whether there is anything at the
/// path.
pub(super) fn check(held: &Held) -> Result<bool, Refusal> {
    let path = &held.path;
    let unreadable = |error| RefusalReason::Unreadable(path.clone(), error).on(path);
    let kind = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        metadata => Some(metadata.map_err(unreadable)?.file_type()),
    };
    if let Some(kind) = kind {
        check_type(held, kind).map_err(|reason| reason.on(path))?;
    }
    let existing = existing(path);
    let real = existing.canonicalize().map_err(unreadable)?;
    let mounts = mounts::ours().map_err(unreadable)?;
    check_mounts(&real, kind.is_some(), &mounts).map_err(|reason| reason.on(path))?;
    check_file_system(&real, &mounts).map_err(|reason| reason.on(path))?;
    if kind.is_some_and(|kind| kind.is_dir()) {
        layer::check(&real).map_err(|reason| reason.on(path))?;
    }
    Ok(kind.is_some())
}

fn check_type(held: &Held, kind: FileType) -> Result<(), RefusalReason> {
    let path = &held.path;
    if kind.is_symlink() {
        let target = path.canonicalize().or_else(|_| fs::read_link(path));
        let target = target.map_err(|error| RefusalReason::Unreadable(path.clone(), error))?;
        return Err(RefusalReason::Symlink(target));
    }
    match (kind.is_file(), kind.is_dir(), held.kind.is_file()) {
        (true, _, true) | (_, true, false) => Ok(()),
        (_, true, true) => {
            let contents = Contents::below(path).ok();
            Err(RefusalReason::Directory(
                contents.and_then(|contents| DatabaseFile::among(contents.files())),
            ))
        }
        (true, _, false) => Err(match kind_of(path) {
            Ok(Some(kind @ HeldKind::Bolt)) => {
                RefusalReason::OtherKind(held.kind, DatabaseFile { kind, file: path.clone() })
            }
            Ok(Some(kind)) => RefusalReason::PartOfSet(kind),
            Ok(None) => RefusalReason::PartOfSet(held.kind),
            Err(error) => RefusalReason::Unreadable(path.clone(), error),
        }),
        _ => Err(RefusalReason::Special),
    }
}

/// Returns `path`, or the nearest directory above it that exists.
fn existing(path: &Path) -> &Path {
    let is_there = |path: &&Path| path.symlink_metadata().is_ok();
    path.ancestors().find(is_there).unwrap_or(path)
}

/// Checks the mounts at `path`, at and below which something is held if `is_held`.
fn check_mounts(path: &Path, is_held: bool, mounts: &[Mount]) -> Result<(), RefusalReason> {
    if is_held && mounts.iter().any(|mount| mount.point == path) {
        return Err(RefusalReason::MountPoint);
    }
    if let Some(below) = mounts.iter().find(|mount| is_held && is_below(&mount.point, path)) {
        return Err(RefusalReason::MountBelow(below.point.clone()));
    }
    let layers = mounts.iter().filter(|mount| mount.kind() == FileSystem::Stacked);
    let mut layers = layers.flat_map(layers_of);
    let overlaps = |layer: &PathBuf| path.starts_with(layer) || (is_held && is_below(layer, path));
    match layers.find(overlaps) {
        Some(layer) => Err(RefusalReason::MountedLayer(layer)),
        None => Ok(()),
    }
}

fn is_below(path: &Path, directory: &Path) -> bool {
    path != directory && path.starts_with(directory)
}

/// Returns the directories of the overlay `mount`, as its options name them.
fn layers_of(mount: &Mount) -> Vec<PathBuf> {
    // A mount by fsconfig(2) can show each layer as an option of its own.
    let names = ["upperdir", "workdir", "lowerdir+", "datadir+"];
    let mut layers: Vec<_> = names.iter().flat_map(|name| mount.options_named(name)).collect();
    let lower = mount.option("lowerdir").unwrap_or_default();
    // Layers are separated by ":"; before layers of data alone there is "::".
    layers.extend(std::env::split_paths(&lower).filter(|path| path.is_absolute()));
    layers
}

fn check_file_system(path: &Path, mounts: &[Mount]) -> Result<(), RefusalReason> {
    let name = match mounts::at(path) {
        Some(mount) => mount.type_name,
        None => {
            let around = mounts.iter().filter(|mount| path.starts_with(&mount.point));
            let nearest = around.max_by_key(|mount| mount.point.as_os_str().len());
            nearest.map_or_else(|| "unknown".to_owned(), |mount| mount.type_name.clone())
        }
    };
    match FileSystem::from_name(&name) {
        FileSystem::Disk { .. } => Ok(()),
        _ => Err(RefusalReason::FileSystem(name)),
    }
}
