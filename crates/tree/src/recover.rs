//! Finds interrupted sessions and lost changes, and removes what they left.

use crate::overlay::TRIAL_PREFIX;
use crate::record::{self, Purpose, TreeName};
use crate::session::DEVICE;
use crate::store::{Opened, SESSIONS, Store, is_leased, open_directory};
use crate::{limits, unneeded};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_sys::overlay::is_at;

/// A trial mount that is older than this was interrupted.
const TRIAL: Duration = Duration::from_secs(600);

/// An interrupted session, which was moved to the trash.
#[derive(Clone, Debug)]
pub struct Interrupted {
    /// A description of the tree that the session came from.
    pub from: String,
    /// What the session was for.
    pub purpose: Purpose,
    /// When the session began: seconds since 1970.
    pub began: u64,
}

impl Interrupted {
    fn from_note(note: record::Session) -> Self {
        Self { from: note.from, purpose: note.purpose, began: note.began }
    }
}

/// Uncommitted changes that are lost.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The tree, which is back at its committed generation.
    pub tree: TreeName,
    /// The content of a layer that is missing; `None` if the machine has stopped.
    pub missing: Option<PathBuf>,
}

/// What a recovery found and removed. Each finding is reported once, because nothing of it is
/// left.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The interrupted sessions.
    pub interrupted: Vec<Interrupted>,
    /// The uncommitted changes that were lost.
    pub lost: Vec<Lost>,
    /// Control groups of interrupted sessions that could not be removed.
    pub groups: Vec<PathBuf>,
}

/// Removes interrupted sessions and notes of lost changes. Every command begins with this.
pub fn recover(store: &Store) -> Result<Recovered, Error> {
    let mut recovered = Recovered::default();
    if !is_recovery_due(store)? {
        return Ok(recovered);
    }
    let _lock = match store.lock() {
        // The store can be read. The next command that can write to it recovers it.
        Err(error) if error.io().kind() == io::ErrorKind::ReadOnlyFilesystem => {
            return Ok(recovered);
        }
        lock => lock?,
    };
    sweep_unnamed(store)?;
    for (id, note) in store.sessions()? {
        if is_dead(store, &id, note.as_ref())? {
            recovered.groups.extend(limits::remove_left(store, &id));
            let reaped = reap(store, &id, note)?;
            if !mutant::is("tree-interrupted-forgotten") {
                recovered.interrupted.extend(reaped);
            }
        }
    }
    for name in store.open_names()? {
        let record = match store.record(&name) {
            Ok(Some(record)) => record,
            // The note belongs to a tree that was removed.
            Ok(None) => {
                store.close(&name)?;
                continue;
            }
            // The changes are kept. A command that uses the tree fails by this error; others work.
            Err(_) => continue,
        };
        let missing = match store.opened(&record)? {
            Opened::No | Opened::Yes(_) => continue,
            Opened::Stale => {
                store.close(&name)?;
                continue;
            }
            Opened::Lost => None,
            Opened::Missing(content) => Some(content),
        };
        let elsewhere = is_committed_elsewhere(store, &name)?;
        store.close(&name)?;
        if !elsewhere {
            recovered.lost.push(Lost { tree: name, missing });
        }
    }
    Ok(recovered)
}

/// Returns the sessions that [`recover`] would remove.
pub(crate) fn interrupted(store: &Store) -> Result<Vec<Interrupted>, Error> {
    let mut found = Vec::new();
    for (id, note) in store.sessions()? {
        if is_dead(store, &id, note.as_ref())?
            && let Some(note) = note
        {
            found.push(Interrupted::from_note(note));
        }
    }
    Ok(found)
}

/// Returns whether a session or a note seems to be a leftover. Checks without the lock.
fn is_recovery_due(store: &Store) -> Result<bool, Error> {
    if unnamed(store)?.next().is_some() {
        return Ok(true);
    }
    for (id, note) in store.sessions()? {
        if is_dead(store, &id, note.as_ref())? {
            return Ok(true);
        }
    }
    for name in store.open_names()? {
        // Nothing is recovered of a tree whose record cannot be read.
        let Ok(record) = store.record(&name) else { continue };
        let opened = record.map(|record| store.opened(&record)).transpose()?;
        if !matches!(opened, Some(Opened::Yes(_))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether the uncommitted changes of `name` have become another tree: a commit
/// was interrupted before it removed the note.
fn is_committed_elsewhere(store: &Store, name: &TreeName) -> Result<bool, Error> {
    let Some(layers) = store.noted(name)? else { return Ok(false) };
    let (records, _) = store.records()?;
    Ok(records.iter().any(|record| record.name != *name && record.layers == layers))
}

fn is_dead(store: &Store, id: &str, note: Option<&record::Session>) -> Result<bool, Error> {
    let is_mount =
        |note: &record::Session| matches!(note.purpose, Purpose::Mount(_) | Purpose::View(_));
    let mount = note.filter(|note| is_mount(note));
    if let Some(note) = mount
        && note.boot_epoch.is_over(&store.boot_epoch()?)
    {
        return Ok(true);
    }
    if note.is_none() && store.unknown_needs(id).is_some() {
        return Ok(false);
    }
    let path = store.session(id);
    // The note names the mount before the mount is attached. Once attached, the mount may
    // be in a namespace that cannot be seen from here.
    let attached = || mount.is_some() && path.join(DEVICE).exists();
    if attached() {
        return Ok(false);
    }
    let directory = match open_directory(&path) {
        Ok(_) if mutant::is("tree-lease-ignored") => return Ok(false),
        // The session has just ended normally.
        Err(error) if error.io().kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    if is_leased(&directory, &path)? {
        return Ok(false);
    }
    // Check again: meanwhile the process may have attached the mount, or ended normally.
    Ok(is_at(directory.as_fd(), &path) && !attached())
}

/// Moves the session to the trash, with the layer that it was about to become.
fn reap(
    store: &Store,
    id: &str,
    note: Option<record::Session>,
) -> Result<Option<Interrupted>, Error> {
    store.discard(&store.session(id))?;
    // The session had ended: its layer belongs to a tree, and only its directory was left.
    let has_ended = match unneeded::drop_unreferenced(store, &[id.to_owned()]) {
        Ok(dropped) => dropped == 0 && store.layer(id).exists(),
        // A tree whose record cannot be read may need the layer. `gc` removes the layer later.
        Err(_) => is_in_a_tree(store, id)?,
    };
    if let Some(note) = &note {
        unneeded::try_drop_unreferenced(store, &note.layer_ids(id));
    }
    Ok(note.filter(|_| !has_ended).map(Interrupted::from_note))
}

/// Returns whether a tree whose record can be read has the layer `id`, or changes in it.
fn is_in_a_tree(store: &Store, id: &str) -> Result<bool, Error> {
    for record in store.records()?.0 {
        let open = store.noted(&record.name)?.unwrap_or_default();
        if record.layer_ids().iter().any(|layer| layer == id)
            || open.iter().any(|layer| layer.id == id)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns entries without a session's name. Sessions are made under the lock, so such an
/// entry is a leftover. Trials are made without the lock; their names contain the pid of
/// their process.
fn unnamed(store: &Store) -> Result<impl Iterator<Item = PathBuf>, Error> {
    let directory = store.path().join(SESSIONS);
    let entries = fs::read_dir(&directory).on("cannot read", &directory)?;
    let is_dead = |name: &[u8], path: &Path| {
        let pid = name
            .strip_prefix(TRIAL_PREFIX.as_bytes())
            .and_then(|rest| std::str::from_utf8(rest).ok()?.split('-').next()?.parse().ok());
        let gone = |pid| test_kill_process(pid) == Err(Errno::SRCH);
        let changed = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        pid.and_then(Pid::from_raw).is_some_and(gone)
            || changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > TRIAL))
    };
    Ok(entries.flatten().filter_map(move |entry| {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.as_encoded_bytes();
        let is_trial = name.starts_with(TRIAL_PREFIX.as_bytes());
        (name.starts_with(b".") && (!is_trial || is_dead(name, &path))).then_some(path)
    }))
}

/// Removes sessions whose process was killed before they had their name.
fn sweep_unnamed(store: &Store) -> Result<(), Error> {
    for path in unnamed(store)? {
        store.discard(&path)?;
    }
    Ok(())
}
