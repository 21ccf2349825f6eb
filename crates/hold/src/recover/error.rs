//! Why a hold was not recovered.

use crate::aside::{AsideError, RestoreError};
use crate::boot;
use crate::open_files::{FileUser, named, stop_by_unit};
use crate::safe_directory;
use rustix::io::Errno;
use std::fmt;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_durable::text::quote;
use synconce_probe::mounts;

/// Why a hold was not recovered. The marker stays.
#[derive(Debug)]
pub enum RecoverError {
    /// An operator must decide. No file was changed.
    Refused {
        /// The name of the hold.
        name: String,
        /// What happened, and why nothing was decided.
        reason: String,
        /// The held files.
        held: Vec<PathBuf>,
        /// The commands of a shell that put back what is set aside; empty if nothing need be put
        /// back.
        put_back: Vec<String>,
    },
    /// A file system that had the held files is not mounted. No file was changed.
    NotMounted {
        /// The name of the hold.
        name: String,
        /// Where the file system was mounted when the hold started.
        point: PathBuf,
        /// The marker.
        marker: PathBuf,
    },
    /// A link above a held path leads to another place than when the hold started, or is gone. No
    /// file was changed.
    Elsewhere {
        /// The name of the hold.
        name: String,
        /// The held path.
        path: PathBuf,
        /// Where the files are.
        then: PathBuf,
    },
    /// A held file is not at its place. No file was changed.
    NotFound {
        /// The name of the hold.
        name: String,
        /// Where the file was when the hold started.
        path: PathBuf,
        /// The mount point of the file system that is there now.
        point: PathBuf,
        /// The inode number of the file.
        inode: u64,
    },
    /// Another file is at the place of a held file. No file was changed.
    Other {
        /// The name of the hold.
        name: String,
        /// Where the held file was when the hold started.
        path: PathBuf,
        /// The mount point of the file system that is there now.
        point: PathBuf,
        /// The inode number of the held file.
        inode: u64,
    },
    /// Processes have files open that would be set aside. No file was changed.
    InUse {
        /// The name of the hold.
        name: String,
        /// The held path.
        path: PathBuf,
        /// The processes.
        users: Vec<FileUser>,
        /// The daemon's unit.
        unit: Option<String>,
    },
    /// The boot id cannot be read. No file was changed.
    Boot(Error),
    /// Files could not be set aside.
    Aside(AsideError),
    /// A restore that was cut short could not be finished.
    Restore(RestoreError),
    /// An act failed.
    Failed(Error),
}

impl RecoverError {
    /// Returns a command that helps, if it is the only one: see [`RecoverError::commands`].
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Aside(AsideError::Failed(error))
            | Self::Restore(RestoreError::Failed(error))
            | Self::Failed(error) => safe_directory::remedy(error).or_else(|| mount_anew(error)),
            Self::Aside(error) => error.remedy(),
            Self::Restore(error) => error.remedy(),
            Self::Boot(error) => Some(boot::remedy(error)),
            _ => None,
        }
    }

    /// Returns the commands by which an operator looks at the files and decides, each with what
    /// it does. Empty if the error is of another kind.
    pub fn commands(&self) -> Vec<(String, &'static str)> {
        match self {
            Self::Refused { name, held, put_back, .. } => {
                let restore = format!("synconce hold restore {name}");
                let put_back = (!put_back.is_empty()).then_some((restore, "put the files back"));
                let look = held
                    .iter()
                    .map(|path| (format!("ls -la {}", quote(path)), "look at the files"));
                let keep = format!("synconce hold recover {name} --keep");
                let wipe = format!("synconce hold recover {name} --wipe");
                let decide = [
                    (keep, "use the files as they are"),
                    (wipe, "set the files aside; the daemon starts without them"),
                ];
                put_back.into_iter().chain(look).chain(decide).collect()
            }
            Self::NotMounted { point, name, marker } => vec![
                (format!("mount {}", quote(point)), "mount the file system"),
                (format!("synconce hold recover {name}"), "then recover"),
                (
                    format!("rm {}", quote(marker)),
                    "only if the files never come back: no later command reports the hold",
                ),
            ],
            Self::Elsewhere { name, then, .. } => vec![
                (format!("ls -la {}", quote(then)), "look at the files"),
                (format!("synconce hold recover {name}"), "after the link leads there again"),
                (
                    format!("synconce hold recover {name} --keep"),
                    "only if no daemon uses these files again",
                ),
            ],
            Self::NotFound { name, point, inode, .. } | Self::Other { name, point, inode, .. } => {
                let find = format!("find {} -xdev -inum {inode}", quote(point));
                let recover = format!("synconce hold recover {name}");
                let wipe = (format!("{recover} --wipe"), "only if the file never comes back");
                let keep = "only if the held file never comes back; what is there now is used";
                let mut commands = vec![
                    (find, "look for the held file, if its directory was renamed"),
                    (recover.clone(), "after the file is at its place again"),
                ];
                match self {
                    Self::NotFound { .. } => commands.push(wipe),
                    _ => commands.push((format!("{recover} --keep"), keep)),
                }
                commands
            }
            Self::InUse { name, unit, .. } => {
                let stop = stop_by_unit(unit.as_deref()).map(|stop| (stop, "stop the daemon"));
                let recover = format!("synconce hold recover {name}");
                stop.into_iter().chain([(recover, "after the daemon has ended")]).collect()
            }
            Self::Restore(error) => error.commands(),
            Self::Boot(_) | Self::Aside(_) | Self::Failed(_) => Vec::new(),
        }
    }
}

/// Returns what to do if a failed disk is the cause of `error`. Looks at no path, because the disk
/// may not answer.
fn mount_anew(error: &Error) -> Option<String> {
    if error.io().raw_os_error() != Some(Errno::IO.raw_os_error()) {
        return None;
    }
    let mounts = mounts::ours().ok()?;
    let above = mounts.iter().filter(|mount| error.path().starts_with(&mount.point));
    let point = &above.max_by_key(|mount| mount.point.as_os_str().len())?.point;
    Some(if point == Path::new("/") {
        "once the disk works again, boot the machine".to_owned()
    } else {
        let point = quote(point);
        format!("once the disk works again: umount {point} && mount {point}; then recover again")
    })
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { name, reason, .. } => {
                write!(f, "cannot recover the hold {name} without a decision: {reason}")
            }
            Self::NotMounted { name, point, .. } => write!(
                f,
                "cannot recover the hold {name}: the file system with the files was mounted on \
                 {}, and is not mounted now: mount it first",
                point.display()
            ),
            Self::Elsewhere { name, path, then } => {
                let (path, then) = (path.display(), then.display());
                write!(
                    f,
                    "cannot recover the hold {name}: {path} led to {then} when the hold started, \
                     and does not lead there now"
                )
            }
            Self::NotFound { name, path, .. } => write!(
                f,
                "cannot recover the hold {name}: {} was held, and is not there: another disk may \
                 be mounted, or a directory was renamed",
                path.display()
            ),
            Self::Other { name, path, .. } => write!(
                f,
                "cannot recover the hold {name}: {} is not the file that was held: another disk \
                 may be mounted, or the file was replaced",
                path.display()
            ),
            Self::InUse { name, path, users, .. } => {
                let (path, users) = (path.display(), named(users));
                write!(f, "cannot recover the hold {name}: {path} is in use by {users}")
            }
            Self::Aside(error) => error.fmt(f),
            Self::Restore(error) => error.fmt(f),
            Self::Boot(error) | Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecoverError {}

impl From<AsideError> for RecoverError {
    fn from(error: AsideError) -> Self {
        Self::Aside(error)
    }
}

impl From<RestoreError> for RecoverError {
    fn from(error: RestoreError) -> Self {
        Self::Restore(error)
    }
}

impl From<Error> for RecoverError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
