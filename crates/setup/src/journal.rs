//! The journal: the original files, so that every byte can be restored.

use crate::diff;
use crate::docker::daemon_json;
use crate::engine::Engine;
use crate::error::{Error, NotEdited};
use crate::host::{Host, PathState};
use crate::plan::{PathChange, Plan, PlannedAct};
use crate::text::without_comments;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error as Failed};
use synconce_durable::replace::{self, Rights};

const VERSION: u32 = 1;

/// The files that a set-up of an engine changed or was about to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    version: u32,
    /// The files, in the order of the changes.
    pub files: Vec<JournalEntry>,
    /// Directories that the set-up makes, outermost first.
    pub directories: Vec<PathBuf>,
    /// How many directories above the journal file were missing and made with the journal.
    levels: usize,
}

/// A path before and after the set-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The path within the root of the system, so that the root can be moved.
    pub path: PathBuf,
    /// The original file; `None` if there was none.
    pub before: Option<Before>,
    /// Fingerprints of everything that synconce wrote or was about to write here, in order.
    pub after: Vec<String>,
    /// The text of the last of these contents. Empty in journals of older versions.
    #[serde(default)]
    pub ours: String,
    /// Whether the set-up has ended and no undo has begun. Otherwise only the file's content shows
    /// whether the change was written.
    #[serde(default)]
    pub written: bool,
}

/// An original file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// The content, which was UTF-8.
    pub content: String,
    /// The permission bits.
    pub mode: u32,
    /// The owner.
    pub user: u32,
    /// The group.
    pub group: u32,
}

impl Before {
    pub(crate) fn rights(&self) -> Rights {
        Rights { mode: self.mode, owner: (self.user, self.group) }
    }
}

impl JournalEntry {
    /// Returns whether `found` has the content of the original, or is absent like the original.
    pub(crate) fn is_before(&self, found: &PathState) -> bool {
        match (found, &self.before) {
            (PathState::Absent, None) => true,
            (PathState::File(bytes, _), Some(before)) => bytes == before.content.as_bytes(),
            _ => false,
        }
    }

    /// Returns whether `found` was written by synconce.
    pub(crate) fn is_ours(&self, found: &PathState) -> bool {
        self.after.iter().any(|print| Some(print) == print_of(found).as_ref())
    }

    /// Returns whether `found` has nothing of this set-up and is not the original either. Then the
    /// file was edited after a set-up was killed before changing the file, or after an undo
    /// restored the file.
    pub(crate) fn is_foreign(&self, found: &PathState, host: &Host) -> bool {
        let is_known = self.written || self.is_before(found) || self.is_ours(found);
        !is_known && !holds_ours(found, host)
    }

    /// Returns what an undo of `change` has to restore: `found`, which was edited since an earlier
    /// set-up, without what that set-up wrote.
    fn without_ours(
        &self,
        change: &PathChange,
        found: &PathState,
        host: &Host,
        engine: Engine,
    ) -> Result<Before, Error> {
        let is_edit = matches!(change.act, PlannedAct::Edit { .. });
        let is_last = is_edit && later(self, found, host, engine).is_none();
        let theirs = self.theirs(found, host, engine).filter(|_| is_last);
        theirs.ok_or_else(|| {
            let remedy =
                format!("`{} --undo --dry-run` shows the edits", host.setup(engine.command()));
            let fault = NotEdited::new("was edited since synconce edited it", remedy);
            fault.in_file(&host.real(&change.path)).into()
        })
    }

    /// Returns the file without what this set-up wrote to it: the user's own content of `found`,
    /// which was edited since. Returns `None` if that is not certain.
    pub(crate) fn theirs(&self, found: &PathState, host: &Host, engine: Engine) -> Option<Before> {
        let PathState::File(bytes, rights) = found else { return None };
        let text = str::from_utf8(bytes).ok()?;
        let before = self.before.as_ref().map_or("", |before| before.content.as_str());
        let edited = (engine == Engine::Docker)
            .then(|| daemon_json::without_ours(text, before, &self.ours))
            .flatten()
            .filter(|left| calls_ours(before, host) || !calls_ours(left, host));
        let is_rewritten = || !self.ours.is_empty() && !holds_ours(found, host);
        let is_apart = || !has_a_new_line_of(text, before, &self.ours);
        let whole = || (is_rewritten() && is_apart()).then(|| text.to_owned());
        let (content, (user, group)) = (edited.or_else(whole)?, rights.owner);
        Some(Before { content, mode: rights.mode, user, group })
    }
}

/// Whether `text` has a line with a path that a set-up added to `before` to write `ours`. Lines
/// without a path, such as `[worker.oci]`, do not count: alone they change nothing.
fn has_a_new_line_of(text: &str, before: &str, ours: &str) -> bool {
    let [text, before, ours] = [text, before, ours].map(without_comments);
    let old: Vec<_> = before.lines().map(str::trim).collect();
    let is_new = |line: &&str| line.contains('/') && !old.contains(line);
    let new: Vec<_> = ours.lines().map(str::trim).filter(is_new).collect();
    text.lines().any(|line| new.contains(&line.trim()))
}

/// Whether `text`, of a daemon.json, has a path of synconce. A user may have renamed the runtime of
/// the set-up, or may call a link that the undo removes.
fn calls_ours(text: &str, host: &Host) -> bool {
    text.contains(host.runtime()) || text.contains("/usr/local/lib/synconce/")
}

/// Returns whether `found` contains a word that only synconce writes. Comments are ignored:
/// they may name synconce and have no effect.
fn holds_ours(found: &PathState, host: &Host) -> bool {
    let text = without_comments(&diff::text(found).unwrap_or_default());
    text.contains("synconce") || text.contains(host.runtime())
}

fn print_of(found: &PathState) -> Option<String> {
    match found {
        PathState::Absent => None,
        PathState::File(bytes, _) => Some(print_of_text(bytes)),
        PathState::Link(target) => Some(print_of_link(target)),
    }
}

fn print_of_text(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

fn print_of_link(target: &Path) -> String {
    format!("link:{}", target.display())
}

pub(crate) fn path(host: &Host, engine: Engine) -> PathBuf {
    path_below(host.state(), engine)
}

/// Returns the path of the journal of `engine` below the state directory `state`. An undo saves
/// edited files beside the journal.
pub(crate) fn path_below(state: &Path, engine: Engine) -> PathBuf {
    state.join("setup").join(engine.name()).join("journal.json")
}

impl Journal {
    /// Reads the journal of `engine`, if the engine was set up.
    ///
    /// # Errors
    /// A journal that cannot be read, or has another version, is refused.
    pub(crate) fn read(host: &Host, engine: Engine) -> Result<Option<Self>, Error> {
        let path = path(host, engine);
        let astray = |named: String| {
            let remedy = "make that path a plain one again, if you trust this system";
            Err(NotEdited::new(named, remedy).in_file(&path).into())
        };
        if !host.is_plain(&inside(host, &path)) || !host.is_running() && path.is_symlink() {
            return astray("is behind a link".to_owned());
        }
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.on("cannot read", &path)?,
        };
        let remedy = "use the version of synconce that wrote it";
        let refuse = |reason: String| Error::from(NotEdited::new(reason, remedy).in_file(&path));
        let journal: Self = serde_json::from_slice(&bytes)
            .map_err(|error| refuse(format!("is no journal that is understood: {error}")))?;
        if journal.version != VERSION {
            return Err(refuse(format!("is a journal of version {}", journal.version)));
        }
        if let Some(named) = journal.paths().find(|path| !host.is_plain(path)) {
            return astray(format!("names {}, behind a link or \"..\"", named.display()));
        }
        Ok(Some(journal))
    }

    /// Returns the paths that an undo changes.
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().map(|entry| &entry.path).chain(&self.directories)
    }

    /// Returns a copy of the journal `earlier`, or a new journal, with the changes of `plan` added.
    ///
    /// # Errors
    /// A file that the plan would make exists and is not synconce's. A file was edited since an
    /// earlier set-up, or changed since the plan was made.
    pub fn make(
        plan: &Plan,
        earlier: Option<&Self>,
        host: &Host,
        engine: Engine,
    ) -> Result<Self, Error> {
        let mut journal = earlier.cloned().unwrap_or_else(|| Self {
            version: VERSION,
            files: Vec::new(),
            directories: Vec::new(),
            levels: replace::missing_above(&path(host, engine)).len(),
        });
        // A directory that the set-ups of several engines use is removed by the last undo.
        let others = Engine::ALL.into_iter().filter(|other| *other != engine);
        let others: Vec<_> =
            others.filter_map(|other| Self::read(host, other).ok().flatten()).collect();
        for other in &others {
            journal.levels = journal.levels.max(other.levels);
        }
        for change in &plan.changes {
            journal.add(change, host, engine)?;
            let made = others.iter().flat_map(|other| &other.directories);
            let shared = made.filter(|made| change.path.starts_with(made)).cloned();
            let missing = replace::missing_above(&host.real(&change.path));
            let missing = missing.iter().map(|missing| inside(host, missing));
            journal.directories.extend(shared.chain(missing));
        }
        // Outermost first, whichever journal listed them.
        journal.directories.sort();
        journal.directories.dedup();
        Ok(journal)
    }

    fn add(&mut self, change: &PathChange, host: &Host, engine: Engine) -> Result<(), Error> {
        let found = host.look(&change.path)?;
        let real = host.real(&change.path);
        let (after, ours) = match &change.act {
            PlannedAct::Edit { after: text, .. }
            | PlannedAct::Create(text)
            | PlannedAct::Own(text) => (print_of_text(text.as_bytes()), text.clone()),
            PlannedAct::Link(target) => (print_of_link(target), diff::link(target)),
        };
        let known = self.files.iter().position(|entry| entry.path == change.path);
        // The entry is outdated if the set-up never changed the file and the file was edited
        // since.
        let out_of_date = known.filter(|at| self.files[*at].is_foreign(&found, host));
        if let Some(at) = known.filter(|_| out_of_date.is_none()) {
            let entry = &mut self.files[at];
            if entry.is_before(&found) || entry.is_ours(&found) {
                entry.after.push(after);
                entry.ours = ours;
            } else {
                let before = Some(entry.without_ours(change, &found, host, engine)?);
                let (path, after) = (change.path.clone(), vec![after]);
                *entry = JournalEntry { path, before, after, ours, written: false };
            }
            return Ok(());
        }
        let before = match (found, &change.act) {
            (PathState::Absent, _) => None,
            (PathState::File(bytes, rights), PlannedAct::Edit { before, .. })
                if bytes == before.as_bytes() =>
            {
                let (content, (user, group)) = (before.clone(), rights.owner);
                Some(Before { content, mode: rights.mode, user, group })
            }
            (_, PlannedAct::Own(_) | PlannedAct::Link(_)) => {
                let fault = NotEdited::new("is there, and not by synconce", "move it away");
                return Err(fault.in_file(&real).into());
            }
            (_, PlannedAct::Edit { .. } | PlannedAct::Create(_)) => {
                let fault = NotEdited::new("was changed meanwhile", "try again");
                return Err(fault.in_file(&real).into());
            }
        };
        let (path, after) = (change.path.clone(), vec![after]);
        let entry = JournalEntry { path, before, after, ours, written: false };
        match out_of_date {
            Some(at) => self.files[at] = entry,
            None => self.files.push(entry),
        }
        Ok(())
    }

    /// Returns whether all files are the originals and no directory of the set-up exists.
    pub(crate) fn is_before(&self, host: &Host) -> bool {
        let is_original = |entry: &JournalEntry| {
            host.look(&entry.path).is_ok_and(|found| entry.is_before(&found))
        };
        let is_made = |directory: &PathBuf| host.real(directory).exists();
        self.files.iter().all(is_original) && !self.directories.iter().any(is_made)
    }

    /// Records that all changes of `plan` were written.
    pub(crate) fn carried_out(&mut self, plan: &Plan) {
        for entry in &mut self.files {
            entry.written |= plan.changes.iter().any(|change| change.path == entry.path);
        }
    }

    /// Records that an undo begins: from now on a file may have its original content again.
    pub(crate) fn undoing(&mut self) {
        self.files.iter_mut().for_each(|entry| entry.written = false);
    }

    /// Writes the journal durably.
    ///
    /// # Errors
    /// The caller must then change no file.
    pub fn write(&self, host: &Host, engine: Engine) -> Result<(), Failed> {
        let path = path(host, engine);
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        let mut text = text.on("cannot write", &path)?;
        text.push(b'\n');
        replace::make_directories_above(&path)?;
        // Configuration may contain secrets, such as a proxy's password.
        replace::write(&path, &text, Rights { mode: 0o600, ..Rights::common() })
    }

    /// Removes the journal and the directories that were made for it.
    ///
    /// # Errors
    /// The undo can be repeated.
    pub(crate) fn remove(&self, host: &Host, engine: Engine) -> Result<(), Failed> {
        let path = path(host, engine);
        replace::remove(&path)?;
        replace::remove_unfinished(&path)?;
        // At least the engine's directory and the directory of all engines are removed, because
        // both belong to synconce. A directory with saved edits or another journal stays.
        for directory in path.ancestors().skip(1).take(self.levels.max(2)) {
            replace::remove_directory_if_empty(directory)?;
        }
        Ok(())
    }
}

/// Returns another set-up that wrote `now`, on top of what the set-up of `engine` wrote.
pub(crate) fn later(
    entry: &JournalEntry,
    now: &PathState,
    host: &Host,
    engine: Engine,
) -> Option<Engine> {
    let mut others = Engine::ALL.into_iter().filter(|other| *other != engine);
    others.find(|other| {
        let journal = Journal::read(host, *other).ok().flatten();
        let files = journal.iter().flat_map(|journal| &journal.files);
        files.into_iter().any(|file| file.path == entry.path && file.is_ours(now))
    })
}

/// Returns the path of `real` within the system.
fn inside(host: &Host, real: &Path) -> PathBuf {
    let root = host.real(Path::new("/"));
    Path::new("/").join(real.strip_prefix(root).unwrap_or(real))
}
