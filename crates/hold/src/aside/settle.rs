//! The removal of what was set aside.

use super::journal::Journal;
use super::{AsideError, PREFIX, directory, exists, sync};
use crate::awaited_lock::OnWait;
use crate::runtime::Lock;
use crate::state_directory;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::SystemTime;
use synconce_durable::error::{Context, Error};
use synconce_durable::replace;

/// Removes what was set aside for the hold `name`, and the journal. To be called after the
/// daemon has started without the files. A call that was cut short is finished by the next.
/// Crosses no mount. Waits until no other command changes the hold, and calls `on_wait` before.
///
/// Returns the number of files and directories that were removed; 0 if nothing was set aside.
///
/// # Errors
/// [`AsideError::NotStarted`] if nothing was written where the files belong, or nothing since the
/// last restore: the daemon has not started. Otherwise names the path, which may be of another
/// directory by now. The journal stays, and the next call tries again.
pub fn settle(name: &str, on_wait: OnWait<'_>) -> Result<u64, AsideError> {
    let _lock = Lock::take(name, on_wait)?;
    let journal = Journal::read(name)?;
    if let Some((_, one)) = journal.chosen().next() {
        return Err(AsideError::Unfinished(one.from.clone()));
    }
    for set in journal.sets.iter().filter(|set| !set.finished) {
        if let Some(one) = set.pending()?.first() {
            return Err(AsideError::Unfinished(one.from.clone()));
        }
    }
    let froms = || journal.sets.iter().flat_map(|set| set.moves.iter().map(|one| &one.from));
    let Some(first) = froms().next() else { return Ok(0) };
    let since = last_restore(&journal)?;
    let mut is_made = false;
    for from in froms() {
        is_made = is_made || exists(from)? && has_content(from, since)?;
    }
    if is_made { Ok(remove_all(&journal)?) } else { Err(AsideError::NotStarted(first.clone())) }
}

/// Removes the directories of `journal` with their content, and the journal. Returns the number of
/// files and directories that were removed.
pub(super) fn remove_all(journal: &Journal) -> Result<u64, Error> {
    let mut entries = 0;
    let mut parents = BTreeSet::new();
    for set in &journal.sets {
        for path in set.directories() {
            entries += directory::remove(set, &path)?;
            parents.extend(path.parent().map(Path::to_owned));
        }
    }
    // The journal goes last, durably: without it the directories would never be removed.
    for parent in parents {
        if exists(&parent)? {
            sync(&parent)?;
        }
    }
    let path = state_directory::journal(&journal.name);
    if exists(&path)? {
        replace::remove(&path)?;
    }
    Ok(entries)
}

/// Returns when the last restore ended, if what it has put back is there: such files say nothing
/// of a start of the daemon. A restore ends with a new journal, and so does a later wipe.
fn last_restore(journal: &Journal) -> Result<Option<SystemTime>, Error> {
    if !journal.sets.iter().any(|set| set.restored) {
        return Ok(None);
    }
    let path = state_directory::journal(&journal.name);
    let written = path.metadata().and_then(|found| found.modified());
    written.map(Some).on("cannot look at", &path)
}

/// Whether anything is written in `path`, later than `since` if that is given. A start of the hold
/// makes empty files and directories.
fn has_content(path: &Path, since: Option<SystemTime>) -> Result<bool, AsideError> {
    let found = path.symlink_metadata().on("cannot look at", path)?;
    if !found.is_dir() {
        let is_newer = match since {
            None => true,
            Some(since) => found.modified().on("cannot look at", path)? > since,
        };
        return Ok(is_newer && (!found.is_file() || found.len() > 0));
    }
    for entry in fs::read_dir(path).on("cannot read", path)? {
        let entry = entry.on("cannot read", path)?;
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if !is_ours && has_content(&entry.path(), since)? {
            return Ok(true);
        }
    }
    Ok(false)
}
