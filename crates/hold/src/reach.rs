//! Whether the overlays of a new hold reach the processes that may write to the held files: a lock
//! through an overlay is no lock on the file below.

use crate::live::{Overlay, View, below, spot};
use crate::open_files::{FileUser, identity};
use crate::patience::eventually;
use crate::record::HoldRecord;
use std::fmt;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_durable::text::quote;
use synconce_probe::mounts::{Mount, device};
use synconce_probe::namespaces;

/// Which processes a hold does not reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// The held directory at `path`, or one below it, is mounted at `point`, too, and no overlay
    /// covers that mount.
    Mount {
        /// The held path.
        path: PathBuf,
        /// The mount point, as `user` sees it.
        point: PathBuf,
        /// A process of the mount namespace; `None` in the one of the hold.
        user: Option<FileUser>,
    },
    /// This first process, which starts the unit of the hold of this name.
    First(String, FileUser),
}

impl Unreached {
    /// Returns a command that helps.
    pub fn remedy(&self) -> String {
        match self {
            Self::Mount { point, user: None, .. } => format!("umount {}", quote(point)),
            Self::Mount { point, user: Some(user), .. } => format!(
                "end this process, or type: nsenter --mount --target {} umount {}",
                user.pid,
                quote(point)
            ),
            Self::First(name, user) => {
                format!("nsenter --mount --target {} synconce hold start {name}", user.pid)
            }
        }
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount { path, point, user } => {
                let (path, point) = (path.display(), point.display());
                write!(f, "cannot hold {path}: {point} leads to its files without the hold")?;
                match user {
                    None => Ok(()),
                    Some(user) => write!(f, ", in the mount namespace of {user}"),
                }
            }
            Self::First(name, user) => write!(
                f,
                "cannot start the hold {name} in this mount namespace: the daemon's unit is \
                 started by {user}, which has another one"
            ),
        }
    }
}

/// Returns the mount by which processes can write to a held directory of `record` past its overlay:
/// a mount of that directory, or of a directory below, from before the start.
///
/// A mount of a directory above is accepted. Each service with `PrivateTmp=` and each container has
/// a copy of all mounts. Few of their processes open the held files, and the overlay appears there,
/// too, if the mounts propagate. The guard locks files of bbolt.
pub(crate) fn find_bypass(record: &HoldRecord) -> Result<Option<Unreached>, Error> {
    let mut found = None;
    let is_free = || {
        let view = View::take()?;
        found = view.overlays(record)?.iter().find_map(|overlay| bypass(overlay, &view));
        Ok::<_, Error>(found.is_none())
    };
    Ok(if eventually(is_free)? { None } else { found })
}

fn bypass(overlay: &Overlay<'_>, view: &View) -> Option<Unreached> {
    if overlay.place.is_file() {
        return None;
    }
    let held = spot(overlay.mount?, view.ours())?;
    let here = [(None, view.ours())].into_iter();
    let namespaces = here.chain(view.others().iter().map(|one| (Some(one), &*one.mounts)));
    for (namespace, mounts) in namespaces {
        let is_bypass = |mount: &&Mount| {
            let is_inside = device(mount) == held.0 && mount.root.starts_with(&held.1);
            is_inside && mount.writable && !is_covered(mount, mounts)
        };
        if let Some(mount) = mounts.iter().find(is_bypass) {
            let (path, point) = (overlay.place.path(), mount.point.clone());
            let user = namespace.map(FileUser::in_namespace);
            return Some(Unreached::Mount { path, point, user });
        }
    }
    None
}

/// Whether another mount of `mounts` is over the whole of `mount`.
fn is_covered(mount: &Mount, mounts: &[Mount]) -> bool {
    let is_over = |other: &Mount| {
        other.point == mount.point && below(other, mounts).is_some_and(|it| it.id == mount.id)
    };
    mounts.iter().any(is_over)
}

/// Returns the first process of this pid namespace if it does not see the overlays of `record`,
/// which are mounted here: a daemon that it starts would use the files without the hold.
///
/// A container has another root than the first process, and a daemon of its own.
pub(crate) fn first_without(record: &HoldRecord) -> Result<Option<FileUser>, Error> {
    let Some(first) = namespaces::of_mounts("1").filter(|first| *first != namespaces::ours())
    else {
        return Ok(None);
    };
    if identity(Path::new("/proc/1/root")) != identity(Path::new("/")) {
        return Ok(None);
    }
    let view = View::take()?;
    let devices: Vec<_> = view.overlays(record)?.iter().filter_map(Overlay::device).collect();
    let others = view.others().iter();
    let there = others.filter(|one| one.number == first).flat_map(|one| &one.mounts);
    let has_overlay = there.into_iter().any(|mount| devices.contains(&device(mount)));
    Ok(if has_overlay { None } else { FileUser::from_pid(1) })
}
