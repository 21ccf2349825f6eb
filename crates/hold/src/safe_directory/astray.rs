//! What would lead root to another file.

use super::SCRATCH;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use synconce_durable::error::Error;
use synconce_durable::pins::mount_of;
use synconce_durable::text::quote;
use synconce_probe::mounts;

/// Why root does not use a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Astray {
    /// A link is there, and was not when the hold started.
    Link,
    /// The link is of this user, and leads to a directory of another one.
    LinkOf(u32),
    /// It has the name of a directory of a hold, and is not one that root made.
    NotOfRoot,
    /// It has the name of a directory of a hold, and entries that no hold makes.
    NotOfHold,
    /// All users may write in this directory.
    Writable,
    /// It has other names, and is not of the user of the directory.
    HardLink,
    /// It is not the directory with this inode number, which had its name.
    Another(u64),
    /// It was replaced while it was looked at.
    Replaced,
}

impl Astray {
    /// Returns the cause of `error`, if it is of this kind.
    pub(crate) fn from_error(error: &Error) -> Option<Self> {
        error.io().get_ref()?.downcast_ref().copied()
    }

    /// Returns the error of a use of `path`.
    pub(crate) fn on(self, path: &Path) -> Error {
        Error::new("cannot use", path, io::Error::new(ErrorKind::PermissionDenied, self))
    }
}

impl fmt::Display for Astray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link => f.write_str("it is a link"),
            Self::LinkOf(user) => {
                write!(f, "it is a link of the user {user} to a directory of another user")
            }
            Self::NotOfRoot => f.write_str("root did not make this directory"),
            Self::NotOfHold => f.write_str("it has entries that no hold made"),
            Self::Writable => f.write_str("all users may write in this directory"),
            Self::HardLink => f.write_str("it is a hard link to a file of another user"),
            Self::Another(_) => f.write_str("another directory has its name now"),
            Self::Replaced => f.write_str("it was replaced meanwhile"),
        }
    }
}

impl std::error::Error for Astray {}

/// Returns a command that helps against `error`, if an [`Astray`], a full or a read-only file
/// system is its cause.
pub fn remedy(error: &Error) -> Option<String> {
    match error.io().kind() {
        ErrorKind::ReadOnlyFilesystem => {
            return Some(format!("mount -o remount,rw {}", mount_point_of(error.path())?));
        }
        ErrorKind::StorageFull => {
            return Some(format!("df -h {}, and free space there", mount_point_of(error.path())?));
        }
        _ => {}
    }
    let cause = Astray::from_error(error)?;
    let path = quote(error.path());
    Some(match cause {
        Astray::Link => format!("rm {path}, and put the directory back"),
        Astray::LinkOf(_) => format!("chown --no-dereference root {path}, if the link is right"),
        Astray::NotOfRoot => give_to_root(error.path()),
        Astray::Writable => format!("chmod o-w {path}"),
        Astray::NotOfHold => move_away(error.path()),
        Astray::HardLink => format!("ls -l {path}"),
        Astray::Another(inode) => {
            let above = error.path().parent().unwrap_or(error.path());
            format!("find {} -xdev -inum {inode}", quote(above))
        }
        Astray::Replaced => "stop the daemon".to_owned(),
    })
}

/// Returns the mount point of the file system of `path`, for a shell.
fn mount_point_of(path: &Path) -> Option<String> {
    let existing = path.ancestors().find(|above| above.exists())?;
    let mounts = mounts::ours().ok()?;
    Some(quote(&mount_of(existing, &mounts).ok()?.point))
}

/// Returns the command after which root has the directory `path` of a hold. A `chown -R` above is a
/// common cause. The files in the directory have the owner that the daemon needs: one may be a hard
/// link to a held file. Returns the command that moves away what is no directory.
fn give_to_root(path: &Path) -> String {
    if !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return move_away(path);
    }
    // Neither command does harm if its user puts a link there meanwhile.
    match path.ancestors().find(|above| above.ends_with(SCRATCH)) {
        Some(scratch) => format!(
            "find {} -maxdepth 2 -type d -exec chown -h root: {{}} + -exec chmod go-w {{}} +",
            quote(scratch)
        ),
        None => format!("chown -h root: {0} && chmod go-w {0}", quote(path)),
    }
}

/// Returns the command that renames `path`, which is in the way. The user of the directory above
/// can put a link in its place, so the command looks where it is after it has entered that
/// directory.
fn move_away(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    let with = |end: &str| {
        let mut new = name.to_owned();
        new.push(end);
        new
    };
    let mut new = with(".foreign");
    // What was moved away before stays.
    let mut number = 2;
    while path.with_file_name(&new).symlink_metadata().is_ok() {
        new = with(&format!(".foreign-{number}"));
        number += 1;
    }
    let above = quote(path.parent().unwrap_or(path));
    let [name, new] = [name, &new].map(|name| quote(&Path::new(".").join(name)));
    let path = quote(path);
    format!(
        "(cd -P -- {above} && [ \"$(pwd -P)\" = {above} ] && mv -nT {name} {new}) || \
         {{ printf '%s was not moved\\n' {path} >&2; false; }}"
    )
}
