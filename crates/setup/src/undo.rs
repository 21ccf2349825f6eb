//! The way back: every byte as the journal has it.

use crate::Engine;
use crate::diff;
use crate::error::{Error, Fault};
use crate::host::{Found, Host};
use crate::journal::{Before, Entry, Journal};
use std::path::PathBuf;
use synconce_durable::replace;

/// What undoing would change.
#[derive(Debug)]
pub struct Undo {
    /// Last first.
    pub steps: Vec<Step>,
    journal: Journal,
}

/// One name that goes back.
#[derive(Debug)]
pub struct Step {
    /// As the system sees it.
    pub path: PathBuf,
    /// What is there now.
    pub now: Found,
    /// What was there; `None` for nothing.
    pub before: Option<Before>,
}

impl Undo {
    /// What it would change, as unified diffs.
    pub fn diff(&self, host: &Host) -> String {
        let shown = self.steps.iter().map(|step| {
            let before = step.before.as_ref().map(|before| before.content.as_str());
            diff::unified(&host.real(&step.path), diff::text(&step.now).as_deref(), before)
        });
        shown.collect()
    }
}

/// What undoing `engine` would change; `None` when it was not set up, or is undone.
///
/// # Errors
/// A file that was edited since is refused, with the edit, unless `force`.
pub fn plan(host: &Host, engine: Engine, force: bool) -> Result<Option<Undo>, Error> {
    let Some(journal) = Journal::read(host, engine)? else { return Ok(None) };
    let mut steps = Vec::new();
    for entry in journal.files.iter().rev() {
        let now = host.look(&entry.path)?;
        // Never changed, or put back already.
        if entry.is_before(&now) {
            continue;
        }
        if !entry.is_ours(&now) && !force {
            return Err(edited(entry, &now, host, engine));
        }
        let (path, before) = (entry.path.clone(), entry.before.clone());
        steps.push(Step { path, now, before });
    }
    Ok(Some(Undo { steps, journal }))
}

/// Puts everything back, and ends the journal.
///
/// # Errors
/// Names the act and path; what is not yet back is still in the journal.
pub fn carry_out(undo: &Undo, host: &Host, engine: Engine) -> Result<(), Error> {
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

fn put_back(step: &Step, host: &Host) -> Result<(), Error> {
    let real = host.real(&step.path);
    if host.look(&step.path)? != step.now {
        return Err(Fault::new("was changed meanwhile", "try again").in_file(&real).into());
    }
    match (&step.before, &step.now) {
        (None, _) => replace::remove(&real)?,
        // Mode and owner were kept by the edit; what became of them since is not ours.
        (Some(before), Found::File(..)) => replace::replace(&real, before.content.as_bytes())?,
        (Some(before), Found::Link(_)) => {
            replace::remove(&real)?;
            replace::create(&real, before.content.as_bytes(), before.rights())?;
        }
        (Some(before), Found::Absent) => {
            for missing in replace::missing_above(&real) {
                replace::make_directory(&missing)?;
            }
            replace::create(&real, before.content.as_bytes(), before.rights())?;
        }
    }
    Ok(())
}

/// The refusal for a file that is neither as it was nor as we wrote it. Against
/// what it was before, the edit shows among ours.
fn edited(entry: &Entry, now: &Found, host: &Host, engine: Engine) -> Error {
    let real = host.real(&entry.path);
    let before = entry.before.as_ref().map(|before| before.content.as_str());
    let now = diff::text(now);
    let shown = diff::unified(&real, before, now.as_deref());
    let reason = format!(
        "was edited since synconce edited it; nothing was changed. Both edits:\n{}",
        shown.trim_end()
    );
    let remedy = format!(
        "take your edit out and undo again, or lose it by `synconce setup {} --undo --force`",
        engine.name()
    );
    Fault::new(reason, remedy).in_file(&real).into()
}
