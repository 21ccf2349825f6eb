//! Refuses a path of a config if it leads to a held file: it is the same path, or leads there by a
//! link or a bind mount, or is below an overlay whose marker is missing.

use crate::config::Config;
use crate::error::HoldFailure;
use crate::live;
use crate::record::HoldRecord;
use crate::resolved_path::ResolvedPath;
use crate::unclean::unclean;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::pins::mount_of;
use synconce_probe::mounts::{self, Mount, device};

/// Refuses a path of `config` that overlaps another path of `config`, a path of another hold, or an
/// overlay without a marker.
///
/// # Errors
/// As for [`refuse_unmarked`]; [`HoldFailure::Alias`] and [`HoldFailure::Overlap`].
pub(crate) fn refuse_all(config: &Config) -> Result<(), HoldFailure> {
    refuse_in_one(config)?;
    refuse(config)?;
    refuse_unmarked(config)
}

/// Refuses two paths of `config` if one is the other or leads into it, by a link or a bind mount.
///
/// # Errors
/// [`HoldFailure::Alias`], or names the file that cannot be read.
fn refuse_in_one(config: &Config) -> Result<(), HoldFailure> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let spotted = |path: &PathBuf| Some((path.clone(), spot(path, &mounts)?));
    let spots: Vec<_> = config.hold.iter().filter_map(|held| spotted(&held.path)).collect();
    for (at, (path, spot)) in spots.iter().enumerate() {
        let is_near = |(_, other): &&(PathBuf, Spotted)| is_near(spot, other);
        if let Some((other, _)) = spots[..at].iter().find(is_near) {
            return Err(HoldFailure::Alias(path.clone(), other.clone()));
        }
    }
    Ok(())
}

/// Refuses a path of `config` that overlaps a path of another hold, also by a link or a bind mount.
/// Two overlays would show the file as two, so a lock through one would not be seen in the other.
///
/// # Errors
/// [`HoldFailure::Overlap`], or names the marker or path that cannot be read.
fn refuse(config: &Config) -> Result<(), HoldFailure> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let spot = |path: &Path| spot_of_missing(path, &mounts);
    let ours: Vec<_> = config.hold.iter().map(|held| (&held.path, spot(&held.path))).collect();
    for name in HoldRecord::names()?.into_iter().filter(|name| *name != config.name) {
        let other =
            HoldRecord::read(&name).map_err(|error| HoldFailure::of_marker(&name, error))?;
        let Some(other) = other else { continue };
        let places = other.places().unwrap_or_default();
        for (index, held) in other.held().iter().enumerate() {
            let theirs = places.get(index).and_then(|place| spot(&place.path()));
            let is_near = |(path, spot): &&(&PathBuf, Option<Spotted>)| {
                is_in_line(path, &held.path)
                    || spot.as_ref().zip(theirs.as_ref()).is_some_and(|(a, b)| is_near(a, b))
            };
            if let Some((path, _)) = ours.iter().find(is_near) {
                let (path, is_unclean) = ((*path).clone(), unclean(&other).is_some());
                return Err(HoldFailure::Overlap { path, name, is_unclean });
            }
        }
    }
    Ok(())
}

/// Refuses a path of `config` on which an overlay of a hold is mounted, if no other hold's marker
/// has the path. The marker is then in another state directory, or was removed. Call this only if
/// the hold of `config` has no marker.
///
/// # Errors
/// [`HoldFailure::Unmarked`], or names the file that cannot be read.
pub fn refuse_unmarked(config: &Config) -> Result<(), HoldFailure> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    // A directory that is missing has no mount.
    let places = config.hold.iter().filter_map(|held| ResolvedPath::find(held).ok());
    let Some(place) = places.into_iter().find(|place| place.mount(&mounts).is_some()) else {
        return Ok(());
    };
    match refuse(config) {
        Err(HoldFailure::Overlap { .. }) => Ok(()),
        Err(other) => Err(other),
        Ok(()) => Err(HoldFailure::Unmarked(place.path(), config.name.clone())),
    }
}

/// Returns the devices of the file systems that have the paths of `config`, each with one of these
/// paths. A path need not exist yet. All names of a file give the same device.
///
/// # Errors
/// Names the file that cannot be read.
pub(crate) fn devices(config: &Config) -> Result<BTreeMap<u64, PathBuf>, Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let device = |path: &PathBuf| Some((spot_of_missing(path, &mounts)?.0, path.clone()));
    Ok(config.hold.iter().filter_map(|held| device(&held.path)).collect())
}

/// The device of a file system, and a path in it.
type Spotted = (u64, PathBuf);

/// Whether one path is the other, or a directory above it.
fn is_in_line(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Whether one is the other, or leads into it.
fn is_near(one: &Spotted, other: &Spotted) -> bool {
    one.0 == other.0 && is_in_line(&one.1, &other.1)
}

/// Returns the file system of `path`, which need not exist yet, and the path in it. A mount on
/// `path` counts: [`refuse`] and [`refuse_unmarked`] refuse the overlay of a hold there.
fn spot(path: &Path, mounts: &[Mount]) -> Option<Spotted> {
    let Ok(real) = path.canonicalize() else { return spot_of_missing(path, mounts) };
    let mount = mount_of(&real, mounts).ok()?;
    Some((device(mount), mount.root.join(real.strip_prefix(&mount.point).ok()?)))
}

/// Like [`spot`], but ignores a mount on `path` itself, which may be the overlay of a hold.
fn spot_of_missing(path: &Path, mounts: &[Mount]) -> Option<Spotted> {
    let above =
        path.ancestors().skip(1).find_map(|above| Some((above, above.canonicalize().ok()?)));
    let (above, real) = above?;
    let (device, spot) = live::spot_of(&real, mounts)?;
    Some((device, spot.join(path.strip_prefix(above).ok()?)))
}
