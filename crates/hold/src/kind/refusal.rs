//! Why a path may not be held, and what to do instead.

use super::found::DatabaseFile;
use crate::config::HeldKind;
use std::fmt;
use std::io;
use std::path::PathBuf;
use synconce_durable::text::quote;
use synconce_sys::reason;

/// What to write for files of a program that has no kind of its own.
pub const IF_OTHER: &str =
    "if these files agree after a wipe, say kind = \"other\" in the hold's file";

/// Why a path may not be held.
#[derive(Debug)]
pub struct Refusal {
    /// The held path.
    pub path: PathBuf,
    /// The reason.
    pub reason: RefusalReason,
}

/// The reason of a [`Refusal`].
#[derive(Debug)]
pub enum RefusalReason {
    /// This path cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The path is a symbolic link to this path.
    Symlink(PathBuf),
    /// The path is neither a regular file nor a directory.
    Special,
    /// The kind of one file is stated, and the path is a directory; this file is in it.
    Directory(Option<DatabaseFile>),
    /// The path is one file of this kind, which is held as a directory.
    PartOfSet(HeldKind),
    /// The kind is stated, but what is there is of another one, or belongs to a directory above.
    OtherKind(HeldKind, DatabaseFile),
    /// The file or directory has no signature of the stated kind.
    NoSignature(HeldKind),
    /// The file system has this type, which cannot be held.
    FileSystem(String),
    /// The path is a mount point.
    MountPoint,
    /// This mount point is below the path.
    MountBelow(PathBuf),
    /// This subvolume is below the path.
    SubvolumeBelow(PathBuf),
    /// This file or directory belongs to a layer of an overlay. The text says what shows it, as
    /// the end of a sentence.
    Layer(PathBuf, String),
    /// This layer of a mounted overlay is at, above or below the path.
    MountedLayer(PathBuf),
    /// This file belongs to a member of this replicated system.
    Replicated(String, PathBuf),
    /// The members of the etcd with this database cannot be read.
    UnknownMembers(PathBuf, io::Error),
    /// This database writes with O_SYNC or O_DSYNC, which this file shows.
    Synchronous(&'static str, PathBuf),
    /// The directory with this file is PostgreSQL's.
    Postgresql(PathBuf),
}

impl RefusalReason {
    pub(super) fn on(self, path: &std::path::Path) -> Refusal {
        Refusal { path: path.to_owned(), reason: self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot hold {}: {}", self.path.display(), self.reason)
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => {
                write!(f, "cannot read {}: {}", path.display(), reason(error))
            }
            Self::Symlink(target) => write!(f, "a symbolic link to {}", target.display()),
            Self::Special => f.write_str("neither a regular file nor a directory"),
            Self::Directory(found) => {
                f.write_str("the kind \"bolt\" is one file, and this is a directory")?;
                let Some(DatabaseFile { kind, file }) = found else { return Ok(()) };
                write!(f, ", in which {} is of {kind}", file.display())
            }
            Self::PartOfSet(kind) => write!(
                f,
                "a file of {kind} is part of a set of files that must agree after a crash"
            ),
            Self::OtherKind(stated, DatabaseFile { kind, file }) => write!(
                f,
                "path and kind = \"{}\" do not fit what is there: {} is of {kind}",
                stated.word(),
                file.display()
            ),
            Self::NoSignature(kind) => write!(f, "no file there is a database of {kind}"),
            Self::FileSystem(name) if name == "overlay" => {
                f.write_str("the file system is an overlay, which cannot be below another one")
            }
            Self::FileSystem(name) => {
                write!(f, "the file system has the type {name}, which is not on a disk")
            }
            Self::MountPoint => f.write_str("a mount point"),
            Self::MountBelow(point) => write!(f, "{} is a mount point below", point.display()),
            Self::SubvolumeBelow(path) => write!(f, "{} is a subvolume below", path.display()),
            Self::Layer(path, sign) => {
                write!(f, "a layer of an overlay: {} {sign}", path.display())
            }
            Self::MountedLayer(layer) => {
                write!(f, "{} is a layer of a mounted overlay", layer.display())
            }
            Self::Replicated(system, file) => write!(
                f,
                "{} is of {system}: other members of a replicated system rely on what this \
                 member has acknowledged",
                file.display()
            ),
            Self::UnknownMembers(file, error) => {
                let (file, why) = (file.display(), reason(error));
                write!(f, "cannot read the members of etcd in {file}: {why}")
            }
            Self::Synchronous(program, file) => write!(
                f,
                "{} shows that {program} writes with O_SYNC or O_DSYNC, which a hold does not \
                 change",
                file.display()
            ),
            Self::Postgresql(file) => write!(
                f,
                "{} is of PostgreSQL, which is held only if its data may be thrown away",
                file.display()
            ),
        }
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// Returns what to do, for a hint.
    pub fn remedy(&self) -> Option<String> {
        match &self.reason {
            RefusalReason::Symlink(target) => {
                Some(format!("say path = {target:?} in the hold's file"))
            }
            RefusalReason::Directory(found) => found.as_ref().map(|found| found.advice(&self.path)),
            RefusalReason::OtherKind(_, found) => Some(found.advice(&self.path)),
            RefusalReason::PartOfSet(kind) => {
                let found = DatabaseFile { kind: *kind, file: self.path.clone() };
                Some(found.advice(&self.path))
            }
            RefusalReason::MountBelow(_) | RefusalReason::SubvolumeBelow(_) => {
                Some("name the directories of the databases only".to_owned())
            }
            RefusalReason::MountPoint => {
                Some("hold a directory below the mount point, and keep the databases there".into())
            }
            RefusalReason::UnknownMembers(file, _) => Some(format!("bbolt check {}", quote(file))),
            RefusalReason::NoSignature(_) => Some(IF_OTHER.to_owned()),
            RefusalReason::Postgresql(_) => Some(
                "say kind = \"postgresql\" and throw_away = true in the hold's file".to_owned(),
            ),
            _ => None,
        }
    }
}
