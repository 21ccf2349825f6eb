//! Why files that are set aside are not put back.

use crate::boot;
use crate::open_files::{FileUser, ended_by, named};
use crate::safe_directory;
use std::fmt;
use std::path::{Path, PathBuf};
use synconce_durable::error::Error;
use synconce_durable::text::quote;
use synconce_probe::systemd;
use synconce_sys::search::UNIT_DIRECTORIES;

/// Shown beside a command that works only after a boot.
const AFTER_BOOT: &str = "after a reboot of the machine; in a container, of its host";

/// Why files were not put back.
#[derive(Debug)]
pub enum RestoreError {
    /// The hold is in force. Nothing was renamed.
    InForce {
        /// The name of the hold.
        name: String,
        /// The daemon's unit.
        unit: Option<String>,
    },
    /// The hold was interrupted, and its recovery has not begun. Nothing was renamed.
    Interrupted(String),
    /// A `synconce hold run` of the hold has not ended. Nothing was renamed.
    Running(String),
    /// Processes have files open that would be renamed. Nothing was renamed.
    InUse {
        /// The path.
        path: PathBuf,
        /// The processes.
        users: Vec<FileUser>,
        /// The daemon's unit.
        unit: Option<String>,
    },
    /// A file system is mounted on or below the path. Nothing was renamed.
    Mounted {
        /// The path.
        path: PathBuf,
        /// The mount point.
        point: PathBuf,
    },
    /// The directory with what is set aside is gone.
    Gone {
        /// Its path.
        directory: PathBuf,
        /// Its inode number.
        inode: u64,
        /// The journal that names it.
        journal: PathBuf,
    },
    /// Disks of the hold lost writes since their file systems were mounted. The files in memory still
    /// show them.
    Lost {
        /// The name of the hold.
        name: String,
        /// The mount points of the file systems.
        points: Vec<PathBuf>,
        /// Whether the file system of the root directory is one of them: only a boot mounts it anew.
        has_root: bool,
    },
    /// A disk of the hold lost writes, perhaps since these file systems were mounted: sysfs does not
    /// show their super blocks, or did not when the writes were lost.
    MaybeLost {
        /// The name of the hold.
        name: String,
        /// The mount points of the file systems.
        points: Vec<PathBuf>,
        /// Whether a mount of sysfs would show nothing more.
        needs_boot: bool,
    },
    /// The boot id cannot be read. Nothing was renamed.
    Boot(Error),
    /// An act failed. The next call continues the restore.
    Failed(Error),
}

impl From<Error> for RestoreError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl RestoreError {
    /// Returns a command that helps.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::InForce { name, unit } => {
                format!(
                    "{}synconce hold stop {name}; then restore again",
                    stop(name, unit.as_deref())
                )
            }
            Self::Running(_) => "end the daemon".to_owned(),
            Self::Interrupted(name) => format!("synconce hold recover {name}"),
            Self::InUse { unit, users, .. } => ended_by(unit.as_deref(), users),
            Self::Mounted { point, .. } => format!("umount {}", quote(point)),
            Self::Boot(error) => boot::remedy(error),
            Self::Failed(error) => return safe_directory::remedy(error),
            Self::Gone { .. } | Self::Lost { .. } | Self::MaybeLost { .. } => return None,
        })
    }

    /// Returns commands, with what each does.
    pub fn commands(&self) -> Vec<(String, &'static str)> {
        match self {
            Self::Gone { directory, inode, journal } => {
                let mut above = directory.ancestors().skip(1);
                let above = above.find(|path| path.is_dir()).unwrap_or(Path::new("/"));
                let find = format!("find {} -xdev -inum {inode}", quote(above));
                vec![
                    (find, "look for it, and move it back"),
                    (
                        format!("rm {}", quote(journal)),
                        "only if it was deleted: nothing more is put back",
                    ),
                ]
            }
            Self::Lost { name, points, has_root } => {
                let restore = format!("synconce hold restore {name}");
                if *has_root {
                    return vec![(restore, AFTER_BOOT)];
                }
                let command = |verb, point: &PathBuf| format!("{verb} {}", quote(point));
                // The points are sorted: one below another comes after it.
                let unmount = points.iter().rev().map(|point| {
                    (command("umount", point), "and wherever else the file system is mounted")
                });
                let mount = points.iter().map(|point| {
                    (command("mount", point), "as it was mounted; or boot the machine instead")
                });
                let restore = (restore, "then put back what the disk has");
                unmount.chain(mount).chain([restore]).collect()
            }
            Self::MaybeLost { name, needs_boot, .. } => {
                let restore = format!("synconce hold restore {name}");
                if *needs_boot {
                    return vec![(restore, AFTER_BOOT)];
                }
                let mount = "mount -t sysfs sysfs /sys".to_owned();
                vec![(mount, "shows which disk it was"), (restore, "then try again")]
            }
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce { name, .. } => {
                write!(f, "cannot put back the files of the hold {name}: it is in force")
            }
            Self::Interrupted(name) => write!(
                f,
                "cannot put back the files of the hold {name}: it was interrupted, and is not \
                 recovered"
            ),
            Self::Running(name) => write!(
                f,
                "cannot put back the files of the hold {name}: \"synconce hold run\" has not ended"
            ),
            Self::InUse { path, users, .. } => {
                write!(f, "cannot put back {}: it is in use by {}", path.display(), named(users))
            }
            Self::Mounted { path, point } => {
                let (path, point) = (path.display(), point.display());
                write!(f, "cannot put back {path}: a file system is mounted on {point}")
            }
            Self::Gone { directory, .. } => {
                write!(f, "cannot put back what is set aside: {} is gone", directory.display())
            }
            Self::Lost { points, .. } => write!(
                f,
                "cannot put back what is set aside: a disk of the hold lost writes, and was not \
                 mounted again since: {}",
                named_points(points)
            ),
            Self::MaybeLost { points, .. } => write!(
                f,
                "cannot put back what is set aside: a disk of the hold lost writes, and nothing \
                 shows whether it was mounted again since: {}",
                named_points(points)
            ),
            Self::Boot(error) | Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Returns the command that stops the daemon of the hold `name`, and the unit of the hold.
fn stop(name: &str, unit: Option<&str>) -> String {
    let Some(unit) = unit.filter(|_| systemd::is_running()).map(Path::new) else {
        return "end the daemon first; then: ".to_owned();
    };
    // A connection to the socket would start the daemon again.
    let socket = unit.with_extension("socket");
    let has_socket =
        UNIT_DIRECTORIES.iter().any(|directory| Path::new(directory).join(&socket).exists());
    let socket = if has_socket { quote(&socket) + " " } else { String::new() };
    format!("systemctl stop {socket}{} synconce-hold-{name}.service; ", quote(unit))
}

fn named_points(points: &[PathBuf]) -> String {
    let points: Vec<_> = points.iter().map(|point| point.display().to_string()).collect();
    points.join(", ")
}

impl std::error::Error for RestoreError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_the_root_directory_is_mounted_anew_by_a_boot() {
        let commands = |points: &[&str], has_root| {
            let points = points.iter().map(PathBuf::from).collect();
            let error = RestoreError::Lost { name: "t".to_owned(), points, has_root };
            let commands = error.commands().into_iter().map(|(command, _)| command);
            Vec::from_iter(commands).join("; ")
        };
        assert_eq!(commands(&["/", "/data"], true), "synconce hold restore t");
        assert_eq!(
            commands(&["/a b", "/data", "/data/db"], false),
            "umount /data/db; umount /data; umount '/a b'; \
             mount '/a b'; mount /data; mount /data/db; synconce hold restore t"
        );
    }
}
