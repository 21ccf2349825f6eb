//! Whether the files of a hold can be found. A file whose disk is not mounted is not missing, and
//! neither is a file that cannot be read.

use super::{Decision, RecoverError};
use crate::aside::{Journal, directory_of};
use crate::config::{Config, Held};
use crate::file_id::FileId;
use crate::open_files::identity;
use crate::record::HoldRecord;
use crate::resolved_path::ResolvedPath;
use crate::state_directory;
use crate::users;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_durable::record::seconds;
use synconce_durable::replace::exists;
use synconce_probe::mounts;

/// Refuses while a file system of `record` is not mounted at its mount point. The files are
/// there after the next mount, and the daemon would start on them.
pub(super) fn refuse_unmounted(record: &HoldRecord) -> Result<(), RecoverError> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let is_unmounted = |point: &&PathBuf| {
        // In a chroot the mount of the files can be outside of the root: the record then has a
        // plain directory, and no mount is above it.
        let is_in_sight = mounts.iter().any(|mount| point.starts_with(&mount.point));
        is_in_sight && !mounts.iter().any(|mount| mount.point == **point)
    };
    match record.file_systems.iter().map(|system| &system.point).find(is_unmounted) {
        None => Ok(()),
        Some(point) => Err(RecoverError::NotMounted {
            name: record.name.clone(),
            point: point.clone(),
            marker: state_directory::marker(&record.name),
        }),
    }
}

/// Refuses if the files are still where a link led at the start of the hold, but the link is gone
/// or leads elsewhere now. This looks at links above the held paths of `record` and above paths
/// that are set aside. Without the refusal, the link may lead there again later, and the daemon
/// would use files that a crash may have damaged. With [`Decision::Keep`] the operator has said
/// that they may be used.
pub(super) fn refuse_elsewhere(
    record: &HoldRecord,
    decision: Decision,
) -> Result<(), RecoverError> {
    if decision == Decision::Keep {
        return Ok(());
    }
    let elsewhere = |path: &Path, then| RecoverError::Elsewhere {
        name: record.name.clone(),
        path: path.to_owned(),
        then,
    };
    for (index, held) in record.held().iter().enumerate() {
        // A marker of an older version does not have the place, and the path may be gone.
        let Some(then) =
            record.spots.get(index).map(|spot| ResolvedPath::at(spot.parent.clone(), held))
        else {
            continue;
        };
        let then = then.path();
        if exists(&then)? && identity(&then) != identity(&held.path) {
            return Err(elsewhere(&held.path, then));
        }
    }
    // What is set aside with the held files is found by its path alone.
    for (path, then) in record.config.set_aside.iter().zip(&record.aside_in) {
        let now = directory_of(path);
        if let Some(then) = then.as_ref().filter(|then| now.is_some() && now.as_ref() != Some(then))
        {
            let name = path.file_name().unwrap_or_default();
            return Err(elsewhere(path, then.join(name)));
        }
    }
    Ok(())
}

/// Refuses if a held file of `record` is missing at its path, or another file is there: another
/// disk may be mounted there, or a directory above was renamed. The files that a crash may have
/// damaged are then elsewhere. They could come back later without a warning.
///
/// An earlier recovery may have set the file aside. A file system that was made after the start of
/// the hold never had the files. With [`Decision::Keep`], or [`Decision::Wipe`] of a missing file,
/// the operator has said that the files do not come back.
pub(super) fn refuse_others(record: &HoldRecord, decision: Decision) -> Result<(), RecoverError> {
    if decision == Decision::Keep || mutant::is("hold-others-set-aside") {
        return Ok(());
    }
    let journal = Journal::read(&record.name)?;
    for (index, spot) in record.spots.iter().enumerate() {
        let Some(then) = &spot.id else { continue };
        let path = record.place(index)?.path();
        let point = mount_point_above(&path)?;
        let (name, inode) = (record.name.clone(), then.inode);
        let found = FileId::read(&path)?;
        let is_it = |path: PathBuf| FileId::read(&path).is_ok_and(|id| id.as_ref() == Some(then));
        if found.as_ref() == Some(then) || journal.places_of(&path).any(is_it) {
            continue;
        }
        if found.is_some() {
            return Err(RecoverError::Other { name, path, point, inode });
        }
        let never_was = is_newer(&point, record)?;
        // A link above the path may lead to another file now.
        let is_given_up = decision == Decision::Wipe && !exists(&record.held()[index].path)?;
        if !never_was && !is_given_up {
            return Err(RecoverError::NotFound { name, path, point, inode });
        }
    }
    Ok(())
}

/// Returns the mount point of the file system that `path` is on, or would be on.
fn mount_point_above(path: &Path) -> Result<PathBuf, Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let above = path.ancestors().find(|above| mounts.iter().any(|it| it.point == **above));
    Ok(above.unwrap_or(Path::new("/")).to_owned())
}

/// Whether the file system at `point` was made after the hold of `record` started. The clock may
/// have been wrong by then, so the file system of the start is known by its root.
fn is_newer(point: &Path, record: &HoldRecord) -> Result<bool, Error> {
    let Some(root) = FileId::read(point)? else { return Ok(false) };
    let is_it = record.file_systems.iter().any(|system| system.root.as_ref() == Some(&root));
    let started = seconds(&record.started);
    let is_later = root.born.zip(started).is_some_and(|((born, _), started)| born > started);
    Ok(is_later && !is_it)
}

/// Refuses while a process has files of the hold of `config` open. A daemon that was started
/// without a recovery would go on with the files that are set aside, beside the next daemon, and
/// lose what it writes.
pub(super) fn refuse_used(config: &Config) -> Result<(), RecoverError> {
    let paths: Vec<_> = config.hold.iter().map(|held| held.path.clone()).collect();
    match users::that_stay(&paths)? {
        None => Ok(()),
        Some((path, users)) => Err(RecoverError::InUse {
            name: config.name.clone(),
            path,
            users,
            unit: config.unit.clone(),
        }),
    }
}

/// Returns, in words, why the files may not be as the crash left them, although no other file is
/// in their place: a backup may have been restored, or a file may be on a disk that is not mounted.
pub(super) fn doubt(record: &HoldRecord) -> Result<Option<String>, Error> {
    if let Some(path) = record.restored()? {
        return Ok(Some(format!(
            "the mark of the hold beside {} is gone: a snapshot or a backup may have been restored",
            path.display()
        )));
    }
    let unseen = out_of_sight(record)?;
    let why = |path: PathBuf| {
        format!(
            "{} is missing: its file system may not be mounted, or an earlier recovery set it aside",
            path.display()
        )
    };
    Ok(unseen.map(why))
}

/// Returns a held path that is neither there nor set aside, if the marker does not name the file
/// systems because it is damaged or was lost. The disk of the path may not be mounted. Or an
/// earlier recovery, which was cut short, has set the file aside, and its journal is lost, too.
fn out_of_sight(record: &HoldRecord) -> Result<Option<PathBuf>, Error> {
    if !record.file_systems.is_empty() {
        return Ok(None);
    }
    let aside = Journal::read(&record.name)?.paths();
    for Held { path, .. } in record.held() {
        if !exists(path)? && !aside.contains(path) {
            return Ok(Some(path.clone()));
        }
    }
    Ok(None)
}

/// Fails if one of `held` cannot be looked at.
pub(super) fn look_at(held: &[Held]) -> Result<(), Error> {
    held.iter().try_for_each(|held| exists(&held.path).map(drop))
}

/// Fails if one of `held` cannot be looked at, or is still there after all was set aside.
pub(super) fn expect_none(held: &[Held]) -> Result<(), Error> {
    for Held { path, .. } in held {
        if exists(path)? && !mutant::is("hold-recover-no-rename") {
            let error = ErrorKind::AlreadyExists;
            return Err(Error::new("cannot set aside", path, error));
        }
    }
    Ok(())
}
