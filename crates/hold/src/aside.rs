//! Files that are set aside: renamed into a directory beside them, from which mv(1) puts them
//! back.
//!
//! A journal is durable before the first rename. It names each rename, so that after a crash
//! between any two steps [`set_aside`] finishes what was begun. It also has the identity of each
//! directory, before anything is there. [`settle()`] removes what was set
//! aside, once the daemon has started without it; [`restore()`] puts it back.

mod directory;
mod expand;
mod former;
mod journal;
mod restore;
mod settle;

pub(crate) use self::expand::expand;
pub(crate) use self::former::former;
pub use self::journal::{AsideDirectory, Journal, Move, Set};
pub(crate) use self::restore::finish_restore;
pub use self::restore::{RestoreError, Restored, restore};
pub use self::settle::settle;
pub use crate::lost_writes::Loss;

use crate::safe_directory::{self, SCRATCH, SafeDirectory};
use rustix::fs::{AtFlags, Dir, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::replace::exists;
use synconce_durable::text::quote;
use synconce_durable::{mutant, record};
use synconce_probe::mounts;

/// The beginning of the names that synconce gives to files beside held files. Entries with such
/// a name are never set aside.
pub const PREFIX: &str = ".synconce-";

/// The file in a directory of files set aside that says how to put them back.
const README: &str = "README";

/// The directory there for what is at the old names when an operator puts files back. No file with
/// such a name is set aside.
const REPLACED: &str = ".synconce-replaced";

/// What is to be set aside.
#[derive(Clone, Copy, Debug)]
pub struct AsideRequest<'a> {
    /// The name of the hold.
    pub name: &'a str,
    /// The systemd unit of the daemon.
    pub unit: Option<&'a str>,
    /// Absolute paths; `*` and `?` in the last component match any bytes and any byte.
    pub paths: &'a [PathBuf],
    /// Why: text for the README beside the files.
    pub reason: &'a str,
    /// The disks that lost writes of these files.
    pub losses: &'a [Loss],
}

/// Why nothing more was set aside.
#[derive(Debug)]
pub enum AsideError {
    /// A file system is mounted on or below a path that would be renamed. Nothing was renamed.
    Mounted {
        /// The path that would be renamed.
        path: PathBuf,
        /// The mount point.
        point: PathBuf,
    },
    /// What was begun before is not finished, so it cannot be settled.
    Unfinished(PathBuf),
    /// Nothing was written where the files that were set aside belong, such as this path.
    NotStarted(PathBuf),
    /// An act failed. What was renamed before is in the journal.
    Failed(Error),
}

impl From<Error> for AsideError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl AsideError {
    /// Returns a command that helps.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Mounted { point, .. } => Some(format!("umount {}", quote(point))),
            Self::Failed(error) => safe_directory::remedy(error),
            Self::Unfinished(_) | Self::NotStarted(_) => None,
        }
    }
}

impl fmt::Display for AsideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { path, point } => {
                let (path, point) = (path.display(), point.display());
                write!(f, "cannot set aside {path}: a file system is mounted on {point}")
            }
            Self::Unfinished(path) => {
                let path = path.display();
                write!(f, "cannot remove what was set aside: {path} is still to be renamed")
            }
            Self::NotStarted(path) => {
                let path = path.display();
                write!(
                    f,
                    "cannot remove what was set aside: the daemon has not written {path} anew"
                )
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AsideError {}

/// Sets aside the files of `request`. First finishes what an earlier call began. Files that are
/// missing are no error. When the function returns, all renames are durable.
///
/// Returns the journal, with all that is set aside for this hold.
///
/// # Errors
/// Names the path. The next call continues.
pub fn set_aside(request: &AsideRequest<'_>) -> Result<Journal, AsideError> {
    let mut journal = Journal::read(request.name)?;
    let has_new_losses = journal.add_losses(request.losses);
    if has_new_losses && journal.is_setting_aside() {
        // Durable before the pending renames: once a file is set aside, a restore has to refuse.
        journal.write()?;
    }
    finish(&mut journal)?;
    let paths = expand(request.paths)?;
    if paths.is_empty() {
        if has_new_losses && !journal.sets.is_empty() {
            journal.write()?;
        }
        return Ok(journal);
    }
    check_mounts(&paths)?;
    let number = free_number(&journal, &paths)?;
    journal.note_past();
    let moves = paths.into_iter().map(|from| Move::beside(request.name, number, from));
    journal.sets.push(Set {
        number,
        time: record::now(),
        reason: request.reason.to_owned(),
        unit: request.unit.map(str::to_owned),
        moves: moves.collect(),
        made: Vec::new(),
        finished: false,
        restored: false,
    });
    journal.write()?;
    finish(&mut journal)?;
    Ok(journal)
}

/// Gives up what a crash of an earlier [`set_aside`] left undone, if an operator has put back
/// every file of it. Returns `false`, and changes nothing, if a file is still set aside.
pub fn abandon(name: &str) -> Result<bool, Error> {
    let mut journal = Journal::read(name)?;
    let mut unfinished: Vec<_> = journal.sets.iter_mut().filter(|set| !set.finished).collect();
    for one in unfinished.iter().flat_map(|set| &set.moves) {
        if exists(&one.to)? {
            return Ok(false);
        }
    }
    if !unfinished.is_empty() {
        // The directories stay in the journal: settle removes them.
        unfinished.iter_mut().for_each(|set| set.finished = true);
        journal.write()?;
    }
    Ok(true)
}

/// Does the renames of every unfinished set, and makes them durable.
fn finish(journal: &mut Journal) -> Result<(), AsideError> {
    for at in 0..journal.sets.len() {
        if journal.sets[at].finished {
            continue;
        }
        let pending: Vec<_> = journal.sets[at].pending()?.into_iter().cloned().collect();
        check_mounts(pending.iter().map(|one| &one.from))?;
        if directory::make_all(&mut journal.sets[at])? {
            journal.write()?;
        }
        let (set, readme) = (&journal.sets[at], journal.readme(at));
        set.directories().iter().try_for_each(|path| write_readme(set, path, &readme))?;
        if !mutant::is("hold-recover-no-rename") {
            pending.iter().try_for_each(|one| rename(set, one))?;
        }
        if !mutant::is("hold-recover-marker-first") {
            sync_directories(&journal.sets[at])?;
        }
        journal.sets[at].finished = true;
        journal.write()?;
    }
    Ok(())
}

/// Refuses, as [`set_aside`] of `paths` does, if a file system is mounted on or below what would be
/// renamed. Mounts in the directory of an overlay do not count: the recovery ends them.
///
/// # Errors
/// [`AsideError::Mounted`], or names a directory that cannot be read.
pub(crate) fn refuse_mounts(paths: &[PathBuf]) -> Result<(), AsideError> {
    let counts = |point: &Path| !point.iter().any(|name| name == SCRATCH);
    refuse(mount_below(&expand(paths)?, counts)?)
}

/// Refuses if a file system is mounted on or below one of `paths`.
fn check_mounts<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), AsideError> {
    refuse(mount_below(paths, |_| true)?)
}

fn refuse(mounted: Option<(PathBuf, PathBuf)>) -> Result<(), AsideError> {
    match mounted {
        None => Ok(()),
        Some((path, point)) => Err(AsideError::Mounted { path, point }),
    }
}

/// Returns the first of `paths` on or below which a file system is mounted at a point that
/// `counts`, and the mount point.
fn mount_below<'a>(
    paths: impl IntoIterator<Item = &'a PathBuf>,
    counts: impl Fn(&Path) -> bool,
) -> Result<Option<(PathBuf, PathBuf)>, Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let points = || mounts.iter().map(|mount| &mount.point).filter(|point| counts(point));
    let mut found = paths.into_iter().filter_map(|path| {
        let point = points().find(|point| point.starts_with(path))?;
        Some((path.clone(), point.clone()))
    });
    Ok(found.next())
}

/// Returns the first number above those of the journal that no directory beside `paths` has.
fn free_number(journal: &Journal, paths: &[PathBuf]) -> Result<u32, Error> {
    let parents: BTreeSet<_> = paths.iter().filter_map(|path| path.parent()).collect();
    let mut number = journal.sets.iter().map(|set| set.number).max().unwrap_or(0) + 1;
    for parent in parents {
        let directory = SafeDirectory::open(parent)?.readable()?;
        for entry in Dir::read_from(directory).on("cannot read", parent)? {
            let entry = entry.on("cannot read", parent)?;
            let name = String::from_utf8_lossy(entry.file_name().to_bytes());
            let prefix = format!("{PREFIX}aside-{}-", journal.name);
            let rest = name.strip_prefix(&prefix);
            let used = rest.and_then(|rest| rest.parse::<u32>().ok());
            number = number.max(used.map_or(0, |used| used.saturating_add(1)));
        }
    }
    Ok(number)
}

/// Opens the directory `path` of `set`, which was made.
fn open(set: &Set, path: &Path) -> Result<SafeDirectory, Error> {
    let missing = || Error::new("cannot open", path, Errno::NOENT);
    directory::open(set, path)?.ok_or_else(missing)
}

/// Writes the README in the directory `path` of `set`. One that exists was made before a crash, and
/// may be incomplete.
fn write_readme(set: &Set, path: &Path, readme: &str) -> Result<(), Error> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut file = File::from(open(set, path)?.open_file(OsStr::new(README), flags)?);
    file.write_all(readme.as_bytes()).on("cannot write a file in", path)?;
    file.sync_all().on("cannot sync a file in", path)
}

fn rename(set: &Set, one: &Move) -> Result<(), Error> {
    let (above, name) = split(&one.from);
    let (aside, new_name) = split(&one.to);
    let (above, aside) = (SafeDirectory::open(above)?, open(set, aside)?);
    let renamed = rename_no_replace((&above, name), (&aside, new_name));
    renamed.on("cannot set aside", &one.from)
}

/// Renames a file that is `from` a directory `to` another, and replaces none.
fn rename_no_replace(
    (from, name): (&SafeDirectory, &OsStr),
    (to, new_name): (&SafeDirectory, &OsStr),
) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        // File systems without RENAME_NOREPLACE (rename(2)).
        Err(Errno::INVAL | Errno::NOSYS) => {
            match rustix::fs::statat(to, new_name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => rustix::fs::renameat(from, name, to, new_name),
                found => found.and(Err(Errno::EXIST)),
            }
        }
        renamed => renamed,
    }
}

/// Syncs the directories on both sides of every rename.
fn sync_directories(set: &Set) -> Result<(), Error> {
    // First the new names: a crash between the syncs must not leave a file without a name.
    let parents = set.moves.iter().filter_map(|one| one.from.parent().map(Path::to_owned));
    let parents: BTreeSet<_> = parents.collect();
    for directory in set.directories().into_iter().chain(parents) {
        sync(&directory)?;
    }
    Ok(())
}

/// Syncs the directory `path`.
fn sync(path: &Path) -> Result<(), Error> {
    SafeDirectory::open(path)?.sync()
}

/// Returns the directory and the name of `path`.
fn split(path: &Path) -> (&Path, &OsStr) {
    (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default())
}

/// Returns the directory that has `path`, without links, if there is one.
pub(crate) fn directory_of(path: &Path) -> Option<PathBuf> {
    path.parent()?.canonicalize().ok()
}

/// Returns the name of the directory `number` for files of the hold `name`.
fn directory_name(name: &str, number: u32) -> OsString {
    format!("{PREFIX}aside-{name}-{number}").into()
}
