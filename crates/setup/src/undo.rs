//! Undoes a set-up: restores every byte from the journal.

use crate::diff;
use crate::engine::Engine;
use crate::error::{Error, NotEdited};
use crate::host::{Host, PathState};
use crate::journal::{self, Before, Journal, JournalEntry, later};
use std::path::{Path, PathBuf};
use synconce_durable::replace::{self, Rights};

/// What an undo would change.
#[derive(Debug)]
pub struct Undo {
    /// The steps, last change first.
    pub steps: Vec<UndoStep>,
    /// The files that stay as they are now: others have replaced what synconce wrote.
    pub kept: Vec<PathBuf>,
    journal: Journal,
}

/// The undo of one path.
#[derive(Debug)]
pub struct UndoStep {
    /// The path within the system.
    pub path: PathBuf,
    /// What is there now.
    pub now: PathState,
    /// The original file; `None` if there was none. If `keeps_edits`, it is `now` without what
    /// synconce wrote.
    pub before: Option<Before>,
    /// Whether the file was edited since, and the edits stay.
    pub keeps_edits: bool,
    /// Where `now` is kept, if it contains the user's edits that `--force` discards.
    pub saved: Option<PathBuf>,
}

impl Undo {
    /// Returns what the undo would change, as unified diffs.
    pub fn diff(&self, host: &Host) -> String {
        let shown = self.steps.iter().map(|step| {
            let before = step.before.as_ref().map(|before| before.content.as_str());
            diff::unified(&host.real(&step.path), diff::text(&step.now).as_deref(), before)
        });
        shown.collect()
    }
}

/// What an undo does with what others wrote to a file since the set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edits {
    /// Keeps the edit, if it can be told from what synconce wrote. Otherwise refuses, and shows the
    /// edit.
    Refuse,
    /// Puts the file of before the set-up in its place.
    Overwrite,
}

/// Plans the undo of `engine`. Returns `None` when the engine is not set up.
///
/// # Errors
/// A file that was edited since, if `edits` are refused.
pub fn plan(host: &Host, engine: Engine, edits: Edits) -> Result<Option<Undo>, Error> {
    let Some(journal) = Journal::read(host, engine)? else { return Ok(None) };
    let (mut steps, mut kept) = (Vec::new(), Vec::new());
    for entry in journal.files.iter().rev() {
        let now = host.look(&entry.path)?;
        // Never changed, or restored already.
        if entry.is_before(&now) || entry.is_foreign(&now, host) {
            continue;
        }
        let is_ours = entry.is_ours(&now);
        if !is_ours && edits == Edits::Refuse {
            let later = later(entry, &now, host, engine);
            let theirs = entry.theirs(&now, host, engine).filter(|_| later.is_none());
            let Some(theirs) = theirs else { return Err(edited(entry, &now, host, engine, later)) };
            let path = entry.path.clone();
            if matches!(&now, PathState::File(bytes, _) if bytes == theirs.content.as_bytes()) {
                kept.push(path);
            } else {
                let before = Some(theirs);
                steps.push(UndoStep { path, now, before, keeps_edits: true, saved: None });
            }
            continue;
        }
        let is_lost = !is_ours && now != PathState::Absent;
        let beside = journal::path(host, engine);
        let directory = beside.parent().unwrap_or(&beside);
        let saved = is_lost.then(|| free_place(directory, &entry.path, steps.len()));
        let (path, before) = (entry.path.clone(), entry.before.clone());
        steps.push(UndoStep { path, now, before, keeps_edits: false, saved });
    }
    Ok(Some(Undo { steps, kept, journal }))
}

/// Returns a free path in `directory` to keep the edit of `path`, the file of step `at`.
pub(crate) fn free_place(directory: &Path, path: &Path, at: usize) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Several steps may have files of the same name, and so may an earlier undo.
    let mut places = (at + 1..).map(|n| directory.join(format!("saved-{n}-{name}")));
    let is_free = |place: &PathBuf| std::fs::symlink_metadata(place).is_err();
    places.find(is_free).unwrap_or_else(|| unreachable!("there are more numbers than files"))
}

/// Restores everything, and removes the journal.
///
/// # Errors
/// Files that are not restored yet are still in the journal.
pub fn carry_out(undo: &Undo, host: &Host, engine: Engine) -> Result<(), Error> {
    let mut begun = undo.journal.clone();
    begun.undoing();
    // The disk of the journal of a set-up that failed may be full.
    if begun != undo.journal {
        begun.write(host, engine)?;
    }
    for step in &undo.steps {
        put_back(step, host)?;
    }
    for entry in &undo.journal.files {
        replace::remove_unfinished(&host.real(&entry.path))?;
    }
    for directory in undo.journal.directories.iter().rev() {
        replace::remove_directory_if_empty(&host.real(directory))?;
    }
    undo.journal.remove(host, engine)?;
    Ok(())
}

fn put_back(step: &UndoStep, host: &Host) -> Result<(), Error> {
    let real = host.real(&step.path);
    if host.look(&step.path)? != step.now {
        return Err(NotEdited::new("was changed meanwhile", "try again").in_file(&real).into());
    }
    if let Some(saved) = &step.saved {
        save(&step.now, saved)?;
    }
    match (&step.before, &step.now) {
        (None, _) => replace::remove(&real)?,
        // The set-up kept mode and owner; later changes of them are the operator's.
        (Some(before), PathState::File(..)) => replace::replace(&real, before.content.as_bytes())?,
        (Some(before), PathState::Link(_)) => {
            replace::remove(&real)?;
            replace::create(&real, before.content.as_bytes(), before.rights())?;
        }
        (Some(before), PathState::Absent) => {
            replace::make_directories_above(&real)?;
            replace::create(&real, before.content.as_bytes(), before.rights())?;
        }
    }
    Ok(())
}

/// Keeps `now` as `saved`, readable only by its owner.
pub(crate) fn save(now: &PathState, saved: &Path) -> Result<(), Error> {
    let rights = Rights { mode: 0o600, ..Rights::common() };
    match now {
        PathState::Absent => {}
        PathState::File(bytes, _) => replace::create(saved, bytes, rights)?,
        PathState::Link(target) => replace::link(target, saved)?,
    }
    Ok(())
}

/// Makes the refusal for a file that is neither the original nor what synconce wrote.
fn edited(
    entry: &JournalEntry,
    now: &PathState,
    host: &Host,
    engine: Engine,
    later: Option<Engine>,
) -> Error {
    let real = host.real(&entry.path);
    let shown = diff::unified(&real, Some(&entry.ours), diff::text(now).as_deref());
    let reason = format!(
        "was edited since synconce edited it; nothing was changed. The edit:\n{}",
        shown.trim_end()
    );
    let force = format!("{} --undo --force", host.setup(engine.command()));
    let remedy = match (later, now) {
        (Some(other), _) => {
            format!("first undo the later set-up: {} --undo", host.setup(other.command()))
        }
        (None, PathState::Absent) => format!("to put it back as it was before: {force}"),
        (None, _) => format!(
            "to keep your edit, take synconce's part out and undo again; or: {force}, which saves \
             your file"
        ),
    };
    NotEdited::new(reason, remedy).in_file(&real).into()
}
