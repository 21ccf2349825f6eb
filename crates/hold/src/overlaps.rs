//! Paths that lead to files which are held already, by whatever names, and with whatever markers.

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

/// Refuses paths of `config` that overlap each other, or what is held already.
///
/// # Errors
/// As for [`refuse_unmarked`]; [`HoldFailure::Alias`] and [`HoldFailure::Overlap`].
pub(crate) fn refuse_all(config: &Config) -> Result<(), HoldFailure> {
    refuse_in_one(config)?;
    refuse(config)?;
    refuse_unmarked(config)
}

/// Refuses two paths of `config` of which one leads into the other, by a link or a bind mount.
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

/// Refuses a path of `config` that another hold has, too, by its name or by another: a link or a
/// bind mount.
/// A lock through one overlay is no lock in the other.
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

/// Refuses while a path of `config` has the overlay of a hold, and no marker has the path: the state
/// directory is another one than that of the start, or was removed.
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

/// Returns the devices of the file systems of the paths of `config`, or of what will be made there,
/// each with one of the paths. The devices are the same for all names of a file.
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

/// Whether one of both paths is the other, or a directory above.
fn is_in_line(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Whether one of both leads into the other.
fn is_near(one: &Spotted, other: &Spotted) -> bool {
    one.0 == other.0 && is_in_line(&one.1, &other.1)
}

/// Returns where `path`, or what will be made there, is in its file system. A mount on `path`
/// counts: no hold has the path.
fn spot(path: &Path, mounts: &[Mount]) -> Option<Spotted> {
    let Ok(real) = path.canonicalize() else { return spot_of_missing(path, mounts) };
    let mount = mount_of(&real, mounts).ok()?;
    Some((device(mount), mount.root.join(real.strip_prefix(&mount.point).ok()?)))
}

/// Returns where `path`, or what will be made there, is in its file system. A mount on `path`
/// itself does not count: it may be the one of a hold.
fn spot_of_missing(path: &Path, mounts: &[Mount]) -> Option<Spotted> {
    let above =
        path.ancestors().skip(1).find_map(|above| Some((above, above.canonicalize().ok()?)));
    let (above, real) = above?;
    let (device, spot) = live::spot_of(&real, mounts)?;
    Some((device, spot.join(path.strip_prefix(above).ok()?)))
}
