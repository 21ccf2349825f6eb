//! The way back of what was set aside.
//!
//! The journal has the chosen renames durably before the first of them. Until all are done, no hold
//! starts and nothing is removed: the next [`restore`] or recovery finishes them. What the daemon
//! has made anew is moved into [`REPLACED`], beside the other files of the set.

mod error;

pub use self::error::RestoreError;

use super::journal::{Journal, Move, Set};
use super::{README, REPLACED, directory, mount_below, rename_no_replace, settle, split};
use crate::awaited_lock::OnWait;
use crate::boot::kernel_boot_id;
use crate::file_system::FileSystem;
use crate::lost_writes::{self, Loss};
use crate::record::HoldRecord;
use crate::runtime::{self, Lock};
use crate::safe_directory::{SafeDirectory, sync_file_systems};
use crate::state_directory;
use crate::unclean::unclean;
use crate::users;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_probe::super_block;

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The files and directories by the names where they belong. Empty if nothing was set aside.
    pub paths: Vec<PathBuf>,
    /// The files that had these names until now, and where each is kept.
    pub replaced: Vec<(PathBuf, PathBuf)>,
    /// The directories that still have files: the directories of `replaced`, and those of files
    /// that were set aside later.
    pub kept: Vec<PathBuf>,
    /// Whether the hold is still interrupted, because its recovery was cut short.
    pub is_interrupted: bool,
}

/// Puts back what is set aside for the hold `name`, and finishes a call that was cut short. When
/// the function returns, the files and all renames are durable. Waits until no other command
/// changes the hold, and calls `on_wait` before.
///
/// # Errors
/// Why nothing was renamed, or which act failed.
pub fn restore(name: &str, on_wait: OnWait<'_>) -> Result<Restored, RestoreError> {
    let _lock = Lock::take(name, on_wait)?;
    let journal = Journal::read(name)?;
    // Between its steps a `hold run` has no lock of the hold.
    if runtime::is_running(name)? {
        return Err(RestoreError::Running(name.to_owned()));
    }
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
        Ok(Some(record)) => {
            // The boot id shows whether the hold is in force, or of an earlier boot.
            kernel_boot_id().map_err(RestoreError::Boot)?;
            if unclean(&record).is_none() {
                let unit = record.config.unit;
                return Err(RestoreError::InForce { name: name(), unit });
            }
        }
        Err(error) if !HoldRecord::is_damage(&error) => return Err(error.into()),
        Err(_) => {}
    }
    if journal.is_setting_aside() { Ok(true) } else { Err(RestoreError::Interrupted(name())) }
}

fn put_back(mut journal: Journal) -> Result<Restored, RestoreError> {
    refuse_gone(&journal)?;
    let is_new = !journal.is_restoring();
    if is_new {
        journal.choose();
    }
    let as_chosen = journal.clone();
    let mut chosen: Vec<_> = as_chosen.chosen().collect();
    Journal::sort_outer_first(&mut chosen);
    let mut restored = Restored::default();
    if chosen.is_empty() {
        return Ok(restored);
    }
    if let Some((path, point)) =
        mount_below(chosen.iter().flat_map(|(_, one)| [&one.from, &one.to]), |_| true)?
    {
        return Err(RestoreError::Mounted { path, point });
    }
    refuse_used(&chosen)?;
    // The boot id distinguishes a write that was lost in this boot from an older loss. A loss that
    // this restore finds is noted with the boot id, too.
    kernel_boot_id().map_err(RestoreError::Boot)?;
    refuse_lost(&journal, &chosen)?;
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
        sync_disks(&mut journal, &chosen)?;
    }
    journal.end_restore();
    journal.write()?;
    restored.kept = kept(&journal);
    if restored.kept.is_empty() {
        settle::remove_all(&journal)?;
    }
    Ok(restored)
}

/// Refuses if a directory of files that are set aside is not there: the files would be forgotten. A
/// directory that was made in the successor of an earlier file has moved away with the successor.
fn refuse_gone(journal: &Journal) -> Result<(), RestoreError> {
    for (index, set) in journal.sets.iter().enumerate().filter(|(_, set)| !set.restored) {
        for made in set.made.iter().filter(|made| !journal.is_in_successor(index, &made.path)) {
            let place = journal.place_of_directory(index, &made.path);
            if directory::open_at(set, &made.path, &place)?.is_none() {
                let (directory, inode) = (made.path.clone(), made.id.inode);
                let journal = state_directory::journal(&journal.name);
                return Err(RestoreError::Gone { directory, inode, journal });
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
            // An earlier restore has used this number.
            Err(Errno::EXIST | Errno::NOTEMPTY) => {}
            renamed => {
                renamed.on("cannot move away", &above.path().join(name))?;
                return Ok(away.path().join(new));
            }
        }
    }
    unreachable!("there are more numbers than files")
}

/// Syncs the file systems of the files, with their names. The hold answered syncs of the files
/// without doing them, and after a restore no marker says so any more.
///
/// The kernel reports a lost write once, so a failure is noted for the next call: in memory, too,
/// for a journal on a disk that is full or read-only.
fn sync_disks(journal: &mut Journal, chosen: &[(&Set, &Move)]) -> Result<(), Error> {
    let parents = parents(chosen);
    // Before the syncs: a disk that has failed may no longer be found.
    let systems = parents.iter().map(|parent| Ok((*parent, FileSystem::of(parent)?)));
    let systems: BTreeMap<_, _> = systems.collect::<Result<_, Error>>()?;
    let mut lost = None;
    let opened = sync_file_systems(parents, |error| {
        let system = &systems[error.path()];
        // The failure matters more than that of its notes.
        let _ = lost_writes::note_for_restore(&journal.name, system);
        if journal.add_losses(&[Loss::read(system)]) {
            let _ = journal.write();
        }
        lost.get_or_insert(error);
    });
    lost.map_or(opened, Err)
}

/// Refuses while file systems are mounted that may have lost writes, and names all of them.
fn refuse_lost(journal: &Journal, chosen: &[(&Set, &Move)]) -> Result<(), RestoreError> {
    let (mut lost, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    let (mut has_root, mut needs_boot) = (false, super_block::is_sysfs_shown());
    let losses = losses(journal)?;
    for parent in parents(chosen) {
        let system = FileSystem::of(parent)?;
        let is_of = |loss: &Loss| loss.is_of(&system);
        if losses.iter().any(|loss| is_of(loss) == Some(true))
            || lost_writes::is_noted_for_restore(&journal.name, &system)
        {
            has_root |= system.has(Path::new("/"));
            lost.insert(system.point);
        } else if losses.iter().any(|loss| is_of(loss).is_none()) {
            needs_boot |= losses.iter().any(Loss::is_unseen);
            unknown.insert(system.point);
        }
    }
    let name = journal.name.clone();
    if !lost.is_empty() {
        return Err(RestoreError::Lost { name, points: Vec::from_iter(lost), has_root });
    }
    if !unknown.is_empty() {
        return Err(RestoreError::MaybeLost { name, points: Vec::from_iter(unknown), needs_boot });
    }
    Ok(())
}

/// Returns the losses in `journal` and in the marker. A recovery that was cut short has not copied
/// the marker's yet. A damaged marker has none.
fn losses(journal: &Journal) -> Result<Vec<Loss>, Error> {
    let mut losses = journal.losses.clone();
    if mutant::is("hold-marker-losses-unread") {
        return Ok(losses);
    }
    match HoldRecord::read(&journal.name) {
        Ok(record) => losses.extend(record.into_iter().flat_map(|record| record.losses)),
        Err(error) if HoldRecord::is_damage(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(losses)
}

fn parents<'a>(chosen: &[(&Set, &'a Move)]) -> BTreeSet<&'a Path> {
    chosen.iter().filter_map(|(_, one)| one.from.parent()).collect()
}

/// Returns the directories that have more than a README. A directory that cannot be looked at
/// counts, too.
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
