//! The way back of what was set aside.
//!
//! The journal has the chosen renames durably before the first of them. Until all are done, no hold
//! starts and nothing is removed: the next [`restore`] or recovery finishes them. What the daemon has
//! made anew is moved into [`REPLACED`], beside the other files of the set.

use super::journal::{Journal, Move, Set};
use super::{README, REPLACED, directory, mount_below, rename_no_replace, settle, split};
use crate::awaited_lock::OnWait;
use crate::open_files::{FileUser, named};
use crate::record::HoldRecord;
use crate::runtime::Lock;
use crate::safe_directory::{self, SafeDirectory, sync_file_system};
use crate::unclean::unclean;
use crate::users;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_durable::text::quote;

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The files and directories by the names where they belong. Empty if nothing was set aside.
    pub paths: Vec<PathBuf>,
    /// The files that had these names until now, and where each is kept.
    pub replaced: Vec<(PathBuf, PathBuf)>,
    /// The directories that still have files: those of `replaced`, and what was set aside later.
    pub kept: Vec<PathBuf>,
    /// Whether the hold is still interrupted, because its recovery was cut short.
    pub is_interrupted: bool,
}

/// Why files were not put back.
#[derive(Debug)]
pub enum RestoreError {
    /// The hold is in force. Nothing was renamed.
    InForce(String),
    /// The hold was interrupted, and its recovery has not begun. Nothing was renamed.
    Interrupted(String),
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
    },
    /// An act failed. The next call goes on.
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
            Self::InForce(name) => format!("synconce hold stop {name}"),
            Self::Interrupted(name) => format!("synconce hold recover {name}"),
            Self::InUse { unit: Some(unit), .. } => {
                format!("systemctl stop {}", quote(Path::new(unit)))
            }
            Self::InUse { unit: None, .. } => "stop the daemon, or kill these processes".to_owned(),
            Self::Mounted { point, .. } => format!("umount {}", quote(point)),
            Self::Gone { directory, inode } => {
                let mut above = directory.ancestors().skip(1);
                let above = above.find(|path| path.is_dir()).unwrap_or(Path::new("/"));
                format!("find {} -xdev -inum {inode}", quote(above))
            }
            Self::Failed(error) => return safe_directory::remedy(error),
        })
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce(name) => {
                write!(f, "cannot put back the files of the hold {name}: it is in force")
            }
            Self::Interrupted(name) => write!(
                f,
                "cannot put back the files of the hold {name}: it was interrupted, and is not \
                 recovered"
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
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RestoreError {}

/// Puts back what is set aside for the hold `name`, and finishes a call that was cut short. When
/// the function returns, the files and all renames are durable. Waits until no other command
/// changes the hold, and calls `on_wait` before.
///
/// # Errors
/// Why nothing was renamed, or which act failed.
pub fn restore(name: &str, on_wait: OnWait<'_>) -> Result<Restored, RestoreError> {
    let _lock = Lock::take(name, on_wait)?;
    let journal = Journal::read(name)?;
    let is_interrupted = is_interrupted(&journal)?;
    Ok(Restored { is_interrupted, ..put_back(journal)? })
}

/// Finishes a [`restore`] that was cut short; the caller has the lock. `None` if there is none.
///
/// # Errors
/// As for [`restore`].
pub(crate) fn finish_restore(name: &str) -> Result<Option<Restored>, RestoreError> {
    let journal = Journal::read(name)?;
    if journal.is_restoring() { put_back(journal).map(Some) } else { Ok(None) }
}

/// Returns whether the hold is interrupted. Only files of a recovery that was cut short may be put
/// back then: the operator decides about the files as they were.
fn is_interrupted(journal: &Journal) -> Result<bool, RestoreError> {
    let name = || journal.name.clone();
    match HoldRecord::read(&journal.name) {
        Ok(None) => return Ok(false),
        Ok(Some(record)) if unclean(&record).is_none() => {
            return Err(RestoreError::InForce(name()));
        }
        Err(error) if !HoldRecord::is_damage(&error) => return Err(error.into()),
        Ok(Some(_)) | Err(_) => {}
    }
    if journal.sets.iter().any(|set| !set.finished) {
        Ok(true)
    } else {
        Err(RestoreError::Interrupted(name()))
    }
}

fn put_back(mut journal: Journal) -> Result<Restored, RestoreError> {
    refuse_gone(&journal)?;
    let is_new = !journal.is_restoring();
    if is_new {
        journal.choose();
    }
    let as_chosen = journal.clone();
    let chosen: Vec<_> = as_chosen.chosen().collect();
    let mut restored = Restored::default();
    if chosen.is_empty() {
        return Ok(restored);
    }
    if let Some((path, point)) =
        mount_below(chosen.iter().flat_map(|(_, one)| [&one.from, &one.to]))?
    {
        return Err(RestoreError::Mounted { path, point });
    }
    refuse_used(&chosen)?;
    if is_new && !mutant::is("hold-restore-journal-late") {
        journal.write()?;
    }
    for &(set, one) in &chosen {
        if let Err(error) = rename(set, one, &mut restored) {
            if is_new && restored.paths.is_empty() && restored.replaced.is_empty() {
                // Nothing is half done: the daemon may start without the files.
                journal.give_up_restore();
                journal.write()?;
            }
            return Err(error);
        }
    }
    if !mutant::is("hold-restore-unsynced") {
        sync_disks(&chosen)?;
    }
    journal.end_restore();
    journal.write()?;
    restored.kept = kept(&journal);
    if restored.kept.is_empty() {
        settle::remove_all(&journal)?;
    }
    Ok(restored)
}

/// Refuses if a directory of files that are set aside is not there: the files would be forgotten.
fn refuse_gone(journal: &Journal) -> Result<(), RestoreError> {
    for set in journal.sets.iter().filter(|set| !set.restored) {
        for made in &set.made {
            if directory::open(set, &made.path)?.is_none() {
                let (directory, inode) = (made.path.clone(), made.id.inode);
                return Err(RestoreError::Gone { directory, inode });
            }
        }
    }
    Ok(())
}

/// Refuses while a process has open what the daemon has made anew, or a file that is set aside. A
/// directory that is set aside can be a layer of an image with any number of files, which no daemon
/// has open.
fn refuse_used(chosen: &[(&Set, &Move)]) -> Result<(), RestoreError> {
    let files = chosen.iter().map(|(_, one)| &one.to).filter(|to| to.is_file());
    let paths = chosen.iter().map(|(_, one)| &one.from).chain(files);
    let paths: Vec<_> = paths.cloned().collect();
    match users::that_stay(&paths)? {
        None => Ok(()),
        Some((path, users)) => {
            let unit = chosen.iter().rev().find_map(|(set, _)| set.unit.clone());
            Err(RestoreError::InUse { path, users, unit })
        }
    }
}

/// Undoes the rename `one`, unless that was done before a crash.
fn rename(set: &Set, one: &Move, restored: &mut Restored) -> Result<(), RestoreError> {
    let (above, name) = split(&one.from);
    let (directory, kept) = split(&one.to);
    // The recovery that was cut short may not have made the directory.
    let Some(aside) = directory::open(set, directory)? else { return Ok(()) };
    if aside.look(kept)?.is_none() {
        return Ok(());
    }
    let above = SafeDirectory::open(above)?;
    if above.look(name)?.is_some() {
        let to = move_away(&above, name, &aside)?;
        restored.replaced.push((one.from.clone(), to));
    }
    let renamed = rename_no_replace((&aside, kept), (&above, name));
    renamed.on("cannot put back", &one.from)?;
    restored.paths.push(one.from.clone());
    Ok(())
}

/// Moves `name` from `above` into [`REPLACED`] in `aside`. Returns where it is then.
fn move_away(
    above: &SafeDirectory,
    name: &OsStr,
    aside: &SafeDirectory,
) -> Result<PathBuf, RestoreError> {
    let away = aside.make(OsStr::new(REPLACED))?;
    for number in 1_u32.. {
        let mut new = OsString::from(name);
        if number > 1 {
            new.push(format!(".{number}"));
        }
        match rename_no_replace((above, name), (&away, &new)) {
            // From an earlier restore.
            Err(Errno::EXIST | Errno::NOTEMPTY) => {}
            renamed => {
                renamed.on("cannot move away", &above.path().join(name))?;
                return Ok(away.path().join(new));
            }
        }
    }
    unreachable!("there are more numbers than files")
}

/// Syncs the file systems of the files, and so the names. The hold has answered syncs of the files
/// without doing them. After a restore no marker says so any more.
fn sync_disks(chosen: &[(&Set, &Move)]) -> Result<(), Error> {
    let parents: BTreeSet<_> = chosen.iter().filter_map(|(_, one)| one.from.parent()).collect();
    parents.into_iter().try_for_each(sync_file_system)
}

/// Returns the directories that have more than a README. One that cannot be looked at counts.
fn kept(journal: &Journal) -> Vec<PathBuf> {
    let has_more = |set: &Set, path: &Path| -> Result<bool, Error> {
        let names = directory::open(set, path)?.map(|directory| directory.names()).transpose()?;
        Ok(names.is_some_and(|names| names.iter().any(|name| name != README)))
    };
    let all = journal
        .sets
        .iter()
        .flat_map(|set| set.directories().into_iter().map(move |path| (set, path)));
    let kept = all.filter(|(set, path)| has_more(set, path).unwrap_or(true));
    kept.map(|(_, path)| path).collect()
}
