//! Why a hold cannot start or stop.

use crate::boot;
use crate::kind::Refusal;
use crate::live::Obstacle;
use crate::open_files::{FileUser, ended_by, named};
use crate::reach::Unreached;
use crate::record::HoldRecord;
use crate::safe_directory;
use crate::state_directory;
use std::fmt;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_durable::text::quote;

/// Said of a hold whose restore was cut short.
pub const HALF_RESTORED: &str = "files that were set aside are not all put back";

/// Why the state of held files is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclean {
    /// The machine has stopped since the hold began.
    Boot,
    /// It is unknown whether the machine has stopped since the hold began.
    UnknownBoot,
    /// A write-back error was found.
    WriteBack,
    /// A file system was unmounted since the hold began, in this boot.
    Unmounted,
    /// The mounts of the start are gone, and it is unknown whether the file system was mounted
    /// all the time by others.
    Unseen,
    /// The hold was not stopped, its marker is lost, and the machine or a mount has ended.
    Marker,
    /// The hold was not stopped, and its marker is lost. The machine may have stopped.
    UnknownMarker,
}

impl Unclean {
    /// Whether writes may be lost for certain. Otherwise nothing shows that they may.
    pub fn is_certain(self) -> bool {
        !matches!(self, Self::UnknownBoot | Self::Unseen | Self::UnknownMarker)
    }
}

impl fmt::Display for Unclean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boot => "the machine stopped while the files were held",
            Self::UnknownBoot => {
                "it is unknown whether the machine stopped while the files were held: \
                 /proc/sys/kernel/random/boot_id cannot be read, or could not be when the hold \
                 started"
            }
            Self::WriteBack => "the disk lost writes while the files were held",
            Self::Unmounted => "a file system was unmounted while its files were held",
            Self::Unseen => {
                "the mounts of the held files are new, and nothing shows whether a file system \
                 was unmounted while its files were held"
            }
            Self::Marker => "the files were held and the hold was not stopped; its marker is lost",
            Self::UnknownMarker => {
                "the files were held and the hold was not stopped; its marker is lost, and nothing \
                 shows whether the machine stopped"
            }
        })
    }
}

/// Why a hold did not start or stop.
#[derive(Debug)]
pub enum HoldFailure {
    /// A failed act on a path.
    Act(Error),
    /// The boot id cannot be read.
    Boot(Error),
    /// The marker of this hold is damaged.
    Marker(String, Error),
    /// The held files of this hold may be damaged.
    Unclean(String, Unclean),
    /// What is at the path may not be held.
    Refused(Refusal),
    /// Processes have the path open. `users` is empty if /proc does not show them.
    InUse {
        /// Whether the hold was to start, and not to stop.
        starting: bool,
        /// The held path.
        path: PathBuf,
        /// The processes.
        users: Vec<FileUser>,
        /// The daemon's unit.
        unit: Option<String>,
    },
    /// The hold of this name is in force, and its file says something else now.
    Changed(String),
    /// Only a part of the hold of this name is in force, and cannot end before a new start.
    Again(String, Box<HoldFailure>),
    /// Another `synconce hold run` of this name has not ended.
    Running(String),
    /// Only a part of what was set aside for this hold is put back.
    Restoring(String),
    /// The overlay of the path, in the hold of this name, cannot end because of a mount.
    Blocked(PathBuf, Obstacle, String),
    /// The path is in another hold, too.
    Overlap {
        /// The path.
        path: PathBuf,
        /// The name of the other hold.
        name: String,
        /// Whether the other hold needs a recovery.
        is_unclean: bool,
    },
    /// One of these two paths of a hold leads into the other.
    Alias(PathBuf, PathBuf),
    /// The path of the hold of this name has the overlay of a hold, and no marker.
    Unmarked(PathBuf, String),
    /// A process can write to the files without the hold.
    Unreached(Unreached),
    /// The data directory of dockerd is on this mount, which is private.
    Private(PathBuf, PathBuf),
    /// The directory of the markers is in this path, which would be held or set aside.
    MarkerInside(PathBuf, PathBuf),
    /// Another hold holds the directory of the markers.
    MarkerHeld(PathBuf),
    /// Writes below the path were lost, in the hold of this name.
    WriteBack(PathBuf, String),
    /// The held files are durable, and the removal of what the hold of this name added is not.
    Removal(Error, String),
}

impl HoldFailure {
    /// Returns the failure of a read of the marker of the hold `name`.
    pub fn of_marker(name: &str, error: Error) -> Self {
        if HoldRecord::is_damage(&error) {
            Self::Marker(name.to_owned(), error)
        } else {
            Self::Act(error)
        }
    }

    /// Returns the failure of a stop of `record`, because `users` have files of `path` open.
    pub(crate) fn in_use(path: PathBuf, users: Vec<FileUser>, record: &HoldRecord) -> Self {
        Self::InUse { starting: false, path, users, unit: record.config.unit.clone() }
    }

    /// Returns a command that helps.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Marker(name, _) | Self::Unclean(name, _) | Self::WriteBack(_, name) => {
                Some(format!("synconce hold recover {name}"))
            }
            Self::Overlap { name, is_unclean: true, .. } => {
                Some(format!("synconce hold recover {name}"))
            }
            Self::Overlap { name, .. } | Self::Changed(name) | Self::Removal(_, name) => {
                Some(format!("synconce hold stop {name}"))
            }
            Self::Alias(..) => Some("leave one of the two paths out of the hold's file".to_owned()),
            Self::Blocked(path, obstacle, name) => Some(remove(path, obstacle, name)),
            Self::Unreached(why) => Some(why.remedy()),
            Self::Private(_, point) => Some(format!("mount --make-shared {}", quote(point))),
            Self::Unmarked(path, name) => Some(format!(
                "use the SYNCONCE_STATE_DIR of the start; if its files are lost, stop the daemon, and \
                 type: umount {} && synconce hold start {name} && synconce hold stop {name}",
                quote(path)
            )),
            Self::Refused(refusal) => refusal.remedy(),
            Self::Boot(error) => Some(boot::remedy(error)),
            Self::InUse { unit, users, .. } => Some(ended_by(unit.as_deref(), users)),
            Self::Act(error) => safe_directory::remedy(error),
            Self::Again(_, error) => error.remedy(),
            Self::Restoring(name) => Some(format!("synconce hold restore {name}")),
            Self::Running(_) | Self::MarkerInside(..) | Self::MarkerHeld(_) => None,
        }
    }
}

/// Returns the command that removes `obstacle` of the hold `name` of `path`.
fn remove(path: &Path, obstacle: &Obstacle, name: &str) -> String {
    match obstacle {
        Obstacle::Copy(point) | Obstacle::Inside(point) => format!("umount {}", quote(point)),
        Obstacle::Covered => format!("umount {}", quote(path)),
        Obstacle::Moved(point) => format!(
            "move the directory back, or type: umount {0} && synconce hold stop {name}",
            quote(point)
        ),
        Obstacle::Elsewhere { user, is_home: true, .. } => {
            format!("nsenter --mount --target {} synconce hold stop {name}", user.pid)
        }
        Obstacle::Elsewhere { point, user, .. } => {
            // The stop has tried to unmount it, unless it is a volume.
            format!(
                "end this process, or type: nsenter --mount --target {} umount {}",
                user.pid,
                quote(point)
            )
        }
    }
}

fn say_alias(path: &Path, other: &Path) -> String {
    let (path, other) = (path.display(), other.display());
    format!("cannot hold {path} and {other}: a link or a bind mount leads from one into the other")
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy(point) => write!(f, "it is mounted on {}, too", point.display()),
            Self::Moved(point) => write!(f, "it is mounted on {} now", point.display()),
            Self::Covered => f.write_str("another mount covers it"),
            Self::Inside(point) => {
                write!(f, "a file system is mounted inside, on {}", point.display())
            }
            Self::Elsewhere { point, user, .. } => {
                write!(f, "it is mounted in the mount namespace of {user}, on {}", point.display())
            }
        }
    }
}

impl fmt::Display for HoldFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Act(error) | Self::Boot(error) | Self::Removal(error, _) => error.fmt(f),
            Self::Marker(_, error) => write!(f, "{error}; the marker is damaged"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Unclean(name, why) => {
                let marker = state_directory::marker(name);
                write!(f, "cannot go on with the hold {name}: {why} ({})", marker.display())
            }
            Self::InUse { path, users, starting, .. } => {
                let act = if *starting { "hold" } else { "end the hold of" };
                let users =
                    if users.is_empty() { "another process".to_owned() } else { named(users) };
                write!(f, "cannot {act} {}: in use by {users}", path.display())
            }
            Self::Changed(name) => {
                write!(f, "cannot start the hold {name}: it is in force with other settings")
            }
            Self::Again(name, error) => {
                write!(f, "cannot start the hold {name}, which is partly in force: {error}")
            }
            Self::Running(name) => {
                write!(f, "cannot run the hold {name}: another \"synconce hold run\" runs it")
            }
            Self::Restoring(name) => write!(f, "cannot start the hold {name}: {HALF_RESTORED}"),
            Self::Blocked(path, obstacle, _) => {
                write!(f, "cannot end the hold of {}: {obstacle}", path.display())
            }
            Self::Overlap { path, name, .. } => {
                write!(f, "cannot hold {}: it is in the hold {name}, too", path.display())
            }
            Self::Alias(path, other) => f.write_str(&say_alias(path, other)),
            Self::MarkerInside(directory, path) => {
                let (directory, path) = (directory.display(), path.display());
                write!(f, "cannot hold {path}: the markers of holds are in it, in {directory}")
            }
            Self::MarkerHeld(directory) => write!(
                f,
                "cannot start a hold: the syncs of {}, which has the markers, are held",
                directory.display()
            ),
            Self::Unmarked(path, name) => write!(
                f,
                "cannot change the hold {name}: {} is held, and has no marker in {}",
                path.display(),
                state_directory::directory().display()
            ),
            Self::Unreached(why) => why.fmt(f),
            Self::Private(root, point) => write!(
                f,
                "cannot hold files in {}: the mount {} is private, so dockerd would mount the \
                 directory again without the held files",
                root.display(),
                point.display()
            ),
            Self::WriteBack(path, name) => write!(
                f,
                "cannot make {} durable: the disk lost writes; the hold {name} has ended",
                path.display()
            ),
        }
    }
}

impl std::error::Error for HoldFailure {}

impl From<Unreached> for HoldFailure {
    fn from(why: Unreached) -> Self {
        Self::Unreached(why)
    }
}

impl From<Error> for HoldFailure {
    fn from(error: Error) -> Self {
        Self::Act(error)
    }
}
