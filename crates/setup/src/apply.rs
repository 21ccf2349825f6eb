//! Carries out a plan.

use crate::engine::Engine;
use crate::error::{Error, NotEdited};
use crate::host::{Host, PathState};
use crate::journal::Journal;
use crate::plan::{PathChange, Plan, PlannedAct};
use crate::undo::{self, Edits};
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::path::{Path, PathBuf};
use synconce_durable::replace::{self, Rights};

/// Makes the changes of `plan`, after writing a journal that can undo them.
///
/// # Errors
/// The first error. The changes of a first set-up are taken back; the journal keeps those that
/// cannot be taken back. The changes of a later set-up stay, and are in the journal.
pub fn apply(plan: &Plan, host: &Host, engine: Engine) -> Result<(), Error> {
    if plan.changes.is_empty() {
        return Ok(());
    }
    let earlier = Journal::read(host, engine)?;
    let mut journal = Journal::make(plan, earlier.as_ref(), host, engine)?;
    let made = make_all(plan, &mut journal, host, engine);
    if made.is_err() && earlier.is_none() {
        take_back(&journal, host, engine);
    }
    made
}

fn make_all(plan: &Plan, journal: &mut Journal, host: &Host, engine: Engine) -> Result<(), Error> {
    journal.write(host, engine)?;
    plan.changes.iter().try_for_each(|change| make_below_directories(change, host))?;
    journal.carried_out(plan);
    Ok(journal.write(host, engine)?)
}

/// Undoes the changes of a first set-up that failed: otherwise the engine would have half of it
/// from its next start. Its error is the one to report, so errors are ignored here.
fn take_back(journal: &Journal, host: &Host, engine: Engine) {
    if journal.is_before(host) {
        // Needs no space on the disk of the journal, which may be full.
        let _ = journal.remove(host, engine);
    } else if let Ok(Some(undo)) = undo::plan(host, engine, Edits::Refuse) {
        let _ = undo::carry_out(&undo, host, engine);
    }
}

/// Checks whether [`apply`] would refuse the plan.
///
/// # Errors
/// As for [`apply`].
pub fn check(plan: &Plan, host: &Host, engine: Engine) -> Result<(), Error> {
    let earlier = Journal::read(host, engine)?;
    Journal::make(plan, earlier.as_ref(), host, engine).map(drop)
}

/// Returns the first directory where [`apply`] could not write: its file system is read-only.
pub fn read_only(plan: &Plan, host: &Host) -> Option<PathBuf> {
    let directory = |change: &PathChange| {
        let path = host.real(&change.path);
        path.ancestors().skip(1).find(|path| path.is_dir()).map(Path::to_owned)
    };
    let is_read_only = |path: &PathBuf| {
        statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
    };
    plan.changes.iter().filter_map(directory).find(is_read_only)
}

fn make_below_directories(change: &PathChange, host: &Host) -> Result<(), Error> {
    replace::make_directories_above(&host.real(&change.path))?;
    make(change, host)
}

fn make(change: &PathChange, host: &Host) -> Result<(), Error> {
    let real = host.real(&change.path);
    let found = host.look(&change.path)?;
    match (&change.act, found) {
        (PlannedAct::Edit { before, after }, PathState::File(bytes, _))
            if bytes == before.as_bytes() =>
        {
            replace::replace(&real, after.as_bytes())?;
        }
        (PlannedAct::Create(content) | PlannedAct::Own(content), PathState::Absent) => {
            replace::create(&real, content.as_bytes(), Rights::common())?;
        }
        // The journal lists both contents as written by synconce.
        (PlannedAct::Own(content), PathState::File(..)) => {
            replace::replace(&real, content.as_bytes())?;
        }
        (PlannedAct::Link(target), PathState::Absent) => replace::link(target, &real)?,
        (PlannedAct::Link(target), PathState::Link(_)) => {
            replace::remove(&real)?;
            replace::link(target, &real)?;
        }
        _ => return Err(meanwhile(&real)),
    }
    Ok(())
}

fn meanwhile(path: &Path) -> Error {
    NotEdited::new("was changed meanwhile", "try again").in_file(path).into()
}
