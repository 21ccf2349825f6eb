//! Finds interrupted sessions and lost changes, and removes what they left.

use super::content::DEVICE;
use super::{NOTE, Session};
use crate::layer::names_in;
use crate::overlay::TRIAL_PREFIX;
use crate::pin::Pin;
use crate::record::{self, Name, Purpose};
use crate::store::{Opened, SESSIONS, Store, is_leased, open_directory, read, try_lease};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_probe::mounts;

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

/// Uncommitted changes that were lost in a power failure.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The tree, which is back at its committed generation.
    pub tree: Name,
}

/// What a recovery found and removed. Each finding is reported once, because nothing of it is
/// left.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The interrupted sessions.
    pub interrupted: Vec<Interrupted>,
    /// The uncommitted changes that were lost.
    pub lost: Vec<Lost>,
}

/// Selects a mount.
#[derive(Clone, Copy, Debug)]
pub enum MountOf<'a> {
    /// The mount of the tree with this name.
    Tree(&'a str),
    /// The mount at this path.
    Path(&'a Path),
}

impl Store {
    /// Returns the ids of all sessions, interrupted ones included, each with its note if the
    /// note can be read.
    pub(crate) fn sessions(&self) -> Result<Vec<(String, Option<record::Session>)>, Error> {
        let names = names_in(&self.path().join(SESSIONS))?;
        let names = names.into_iter().filter(|id| self.session(id).is_dir());
        let with_note = |id: String| {
            let note = read(&self.session(&id).join(NOTE)).ok().flatten();
            (id, note)
        };
        Ok(names.map(with_note).collect())
    }

    /// Removes interrupted sessions and notes of lost changes. Every command begins with this.
    ///
    /// # Errors
    /// The error names the act and the path.
    pub fn recover(&self) -> Result<Recovered, Error> {
        let mut recovered = Recovered::default();
        // A store that cannot be written to can still be read.
        if !self.is_recovery_due()? {
            return Ok(recovered);
        }
        let _lock = self.lock()?;
        self.sweep_unnamed()?;
        for (id, note) in self.sessions()? {
            if self.is_dead(&id, note.as_ref())? {
                let reaped = self.reap(&id, note)?;
                if !mutant::is("tree-interrupted-forgotten") {
                    recovered.interrupted.extend(reaped);
                }
            }
        }
        for name in self.open_names()? {
            let Some(record) = self.record(&name)? else {
                // The note belongs to a tree that was removed.
                self.close(&name)?;
                continue;
            };
            match self.opened(&record)? {
                Opened::No | Opened::Yes(_) => {}
                Opened::Stale => self.close(&name)?,
                Opened::Lost => {
                    let elsewhere = self.is_committed_elsewhere(&name)?;
                    self.close(&name)?;
                    if elsewhere {
                        continue;
                    }
                    recovered.lost.push(Lost { tree: name });
                }
            }
        }
        Ok(recovered)
    }

    /// Returns whether a session or a note seems to be a leftover. Checks without the lock.
    fn is_recovery_due(&self) -> Result<bool, Error> {
        if self.unnamed()?.next().is_some() {
            return Ok(true);
        }
        for (id, note) in self.sessions()? {
            if self.is_dead(&id, note.as_ref())? {
                return Ok(true);
            }
        }
        for name in self.open_names()? {
            let opened = self.record(&name)?.map(|record| self.opened(&record)).transpose()?;
            if !matches!(opened, Some(Opened::Yes(_))) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the uncommitted changes of `name` have become another tree: a commit
    /// was interrupted before it removed the note.
    fn is_committed_elsewhere(&self, name: &Name) -> Result<bool, Error> {
        let Some(layers) = self.noted(name)? else { return Ok(false) };
        let (records, _) = self.records()?;
        Ok(records.iter().any(|record| record.name != *name && record.layers == layers))
    }

    fn is_dead(&self, id: &str, note: Option<&record::Session>) -> Result<bool, Error> {
        let is_mount =
            |note: &record::Session| matches!(note.purpose, Purpose::Mount(_) | Purpose::View(_));
        let mount = note.filter(|note| is_mount(note));
        if let Some(note) = mount
            && note.boot_epoch.is_over(&self.boot_epoch()?)
        {
            return Ok(true);
        }
        if note.is_none() && self.is_foreign(id) {
            return Ok(false);
        }
        let path = self.session(id);
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
        Ok(is_named(&directory, &path) && !attached())
    }

    /// Moves the session to the trash, with the layer that it was about to become.
    fn reap(&self, id: &str, note: Option<record::Session>) -> Result<Option<Interrupted>, Error> {
        self.discard(&self.session(id))?;
        let dropped = self.drop_unreferenced(&[id.to_owned()])?;
        // The session had ended: its layer belongs to a tree, and only its directory was left.
        if dropped == 0 && self.layer(id).exists() {
            return Ok(None);
        }
        Ok(note.map(|note| Interrupted {
            from: note.from,
            purpose: note.purpose,
            began: note.began,
        }))
    }

    /// Returns whether the note of session `id` was written by another version, and is no
    /// leftover of a crash. The layers that such a session needs are unknown.
    pub(crate) fn is_foreign(&self, id: &str) -> bool {
        let path = self.session(id).join(NOTE);
        read::<serde_json::Value>(&path).is_ok_and(|value| value.is_some())
            && read::<record::Session>(&path).is_err()
    }

    /// Returns entries without a session's name. Sessions are made under the lock, so such an
    /// entry is a leftover. Trials are made without the lock; their names contain the pid of
    /// their process.
    fn unnamed(&self) -> Result<impl Iterator<Item = PathBuf>, Error> {
        let directory = self.path().join(SESSIONS);
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
    fn sweep_unnamed(&self) -> Result<(), Error> {
        for path in self.unnamed()? {
            self.discard(&path)?;
        }
        Ok(())
    }

    /// Returns the session of the mount `which`, with its lease, and the mount's path. Of
    /// several mounts of a tree, a writable mount comes first: it keeps the tree in use. Of
    /// several mounts at a path, the topmost comes first.
    ///
    /// # Errors
    /// The error names the act and the path.
    pub fn mounted(&self, which: MountOf<'_>) -> Result<Option<(Session<'_>, PathBuf)>, Error> {
        // Two commands that search at the same time would take each other's leases.
        let _lock = self.lock()?;
        let (mut found, mut leased) = (Vec::new(), None);
        for (id, note) in self.sessions()? {
            let Some(note) = note else { continue };
            let (Purpose::Mount(point) | Purpose::View(point)) = note.purpose.clone() else {
                continue;
            };
            let is_it = match which {
                MountOf::Tree(tree) => note.from == tree,
                MountOf::Path(path) => point == path,
            };
            if !is_it {
                continue;
            }
            let path = self.session(&id);
            let pin = Pin::new(self.path())?;
            match try_lease(open_directory(&path)?, &path)? {
                Some(_lease) => {
                    found.push((Session { store: self, id, note, pin, _lease }, point));
                }
                None => leased = Some(point),
            }
        }
        if let Some(point) = leased.filter(|_| found.is_empty()) {
            let why = io::Error::other("another command mounts or unmounts it");
            return Err(Error::new("cannot unmount", &point, why));
        }
        let mounts = mounts::read("self").on("cannot read the mounts of", self.path())?;
        found.sort_by_key(|(session, point)| {
            let (seen, kept) = (session.is_seen_at(point, &mounts), session.can_be_kept());
            match which {
                MountOf::Tree(_) => (!kept, !seen),
                MountOf::Path(_) => (!seen, !kept),
            }
        });
        Ok(found.into_iter().next())
    }
}

/// Returns whether `path` still names the open `directory`.
fn is_named(directory: &OwnedFd, path: &Path) -> bool {
    let there = rustix::fs::stat(path);
    let here = rustix::fs::fstat(directory);
    matches!((there, here), (Ok(there), Ok(here))
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino))
}
