//! Ends sessions: the copy is kept as a layer, committed, or removed.

use super::content::{DEVICE, ROOT, WORK};
use super::source::{Base, refuse};
use super::{NOTE, Session};
use crate::layer::Links;
use crate::overlay;
use crate::record::{FORMAT, Layer, Name, Purpose, Record};
use crate::store::{Opened, Store, open_directory};
use crate::strategy::{Choice, Strategy};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_fs::{Progress, RemoveOptions};

impl Session<'_> {
    /// Returns whether nothing was written.
    fn is_unchanged(&self) -> Result<bool, Error> {
        if self.note.strategy != Strategy::Overlay {
            return Ok(false);
        }
        let (upper, _) = self.content();
        if self.store.content(&self.id).exists() {
            return Ok(false);
        }
        if fs::read_dir(&upper).on("cannot read", &upper)?.next().is_some() {
            return Ok(false);
        }
        let Some(top) = self.note.layers.last() else { return Ok(false) };
        let below = open_directory(&self.store.content(&top.id))?;
        overlay::is_same_root(open_directory(&upper)?.as_fd(), below.as_fd())
    }

    /// Freezes the copy, which nothing writes to any more, and returns the stack with the new
    /// layer.
    fn freeze(&self, progress: &dyn Progress) -> Result<Vec<Layer>, Error> {
        if self.is_unchanged()? {
            return Ok(self.note.layers.clone());
        }
        let (content, kind) = self.content();
        if self.note.strategy == Strategy::Overlay {
            self.settle()?;
        }
        self.remove_work(progress)?;
        let layer = self.store.freeze(&self.id, &content, kind)?;
        let stacked = self.note.strategy == Strategy::Overlay;
        let mut layers = if stacked { self.note.layers.clone() } else { Vec::new() };
        layers.push(layer);
        Ok(layers)
    }

    /// Removes overlay's work directory. Its index has one hard link to each indexed file;
    /// without the index, the files' numbers of links are right.
    fn remove_work(&self, progress: &dyn Progress) -> Result<(), Error> {
        if self.note.strategy != Strategy::Overlay {
            return Ok(());
        }
        let directory = open_directory(&self.directory())?;
        let options = RemoveOptions { threads: 1 };
        let removed = synconce_fs::remove(directory.as_fd(), OsStr::new(WORK), &options, progress)?;
        removed.left.into_iter().next().map_or(Ok(()), Err)
    }

    /// Ends the session and keeps its changes in its tree. The changes are not durable before
    /// a commit.
    ///
    /// # Errors
    /// The error names the act and the path. The tree is then as it was before the session.
    pub fn keep(self, progress: &dyn Progress) -> Result<(), Error> {
        match self.try_keep(progress) {
            Ok(()) => Ok(()),
            // A mounted session stays: `tree umount` can be repeated.
            Err(error) if matches!(self.note.purpose, Purpose::Mount(_)) => Err(error),
            Err(error) => self.discard().and(Err(error)),
        }
    }

    fn try_keep(&self, progress: &dyn Progress) -> Result<(), Error> {
        let tree = self.note.tree.as_ref().ok_or_else(|| {
            Error::new("cannot keep a clone without a name", &self.directory(), Errno::INVAL)
        })?;
        let layers = self.freeze(progress)?;
        // An overlay's layer holds only what was written, so its fingerprint is quick. A whole
        // copy gets its fingerprint at the commit, except a copy by hard links: only the
        // session's note records that its links are shared.
        if matches!(self.note.strategy, Strategy::Overlay | Strategy::Hardlinks) {
            self.store.fingerprint_all(&layers, self.links(), progress)?;
        }
        let _lock = self.store.lock()?;
        let record = self.store.existing(tree)?;
        let now = self.store.stack(tree)?;
        if now.layers == layers && layers.iter().any(|layer| layer.id == self.id) {
            // An earlier, interrupted attempt has got as far as this.
            self.store.leave(&self.id, &self.note.layers);
            return Ok(());
        }
        if now.layers != self.note.layers || Some(record.generation) != self.note.generation {
            let why = io::Error::other("somebody else has committed another generation meanwhile");
            return Err(refuse("cannot keep what was done in", tree, why));
        }
        if layers != self.note.layers {
            self.store.note_open(&record, layers)?;
        }
        self.store.leave(&self.id, &self.note.layers);
        Ok(())
    }

    /// Ends the session and commits its changes durably as the tree `name`: as a new tree, or
    /// as the next generation of `base`, if `base` is still at the generation that the session
    /// began from.
    ///
    /// # Errors
    /// The error names the act and the path, write-back errors included. The tree `name` is
    /// then unchanged, or does not exist.
    pub fn commit_as(
        self,
        name: &Name,
        base: Option<Base>,
        progress: &dyn Progress,
    ) -> Result<Record, Error> {
        let old = base.as_ref().map(|base| self.store.record(&base.name)).transpose()?.flatten();
        let choice = match old {
            Some(Record { strategy, reason, .. }) => Ok(Choice { strategy, reason }),
            None => self.store.choose(&self.note.layers, None),
        };
        match choice {
            Ok(choice) => self.commit_by(name, base, choice, progress),
            Err(error) => self.discard().and(Err(error)),
        }
    }

    /// Like [`Session::commit_as`], with the strategy of `choice` for clones.
    pub(crate) fn commit_by(
        self,
        name: &Name,
        base: Option<Base>,
        choice: Choice,
        progress: &dyn Progress,
    ) -> Result<Record, Error> {
        let frozen = self.freeze(progress).and_then(|layers| {
            self.store.fingerprint_all(&layers, self.links(), progress)?;
            Ok(layers)
        });
        let layers = match frozen {
            Ok(layers) => layers,
            Err(error) => return self.discard().and(Err(error)),
        };
        let Self { store, id, pin, _lease: lease, .. } = self;
        let publish = || store.publish(name, base, layers, choice, &id);
        let committed = match mutant::is("tree-record-first") {
            false => pin.sync().and_then(|()| publish()),
            true => publish().and_then(|record| pin.sync().map(|()| record)),
        };
        if committed.is_err() {
            store.leave(&id, &[]);
            store.try_drop_unreferenced(&[id]);
        }
        drop(lease);
        committed
    }

    /// Ends the session and moves its changes to the trash.
    ///
    /// # Errors
    /// The error names the act and the path.
    pub fn discard(self) -> Result<(), Error> {
        self.roll_back()?;
        self.store.discard(&self.directory())?;
        self.store.try_drop_unreferenced(std::slice::from_ref(&self.id));
        Ok(())
    }
}

impl Session<'_> {
    /// Returns whether other layers have links to the session's files.
    fn links(&self) -> Links {
        match self.note.strategy {
            Strategy::Hardlinks => Links::Shared,
            _ => Links::Own,
        }
    }

    /// Rolls back the note of an interrupted [`Session::keep`].
    fn roll_back(&self) -> Result<(), Error> {
        let Some(tree) = &self.note.tree else { return Ok(()) };
        let is_noted = || -> Result<bool, Error> {
            let noted = self.store.noted(tree)?.unwrap_or_default();
            Ok(noted.iter().any(|layer| layer.id == self.id))
        };
        if !is_noted()? {
            return Ok(());
        }
        let _lock = self.store.lock()?;
        match self.store.record(tree)? {
            Some(record) if is_noted()? => match record.layers == self.note.layers {
                true => self.store.close(tree),
                false => self.store.note_open(&record, self.note.layers.clone()),
            },
            _ => Ok(()),
        }
    }
}

impl Store {
    /// Writes the record of what session `id` made, which is durable already.
    fn publish(
        &self,
        name: &Name,
        base: Option<Base>,
        layers: Vec<Layer>,
        choice: Choice,
        id: &str,
    ) -> Result<Record, Error> {
        let _lock = self.lock()?;
        let generation = self.generation_after(name, base.as_ref(), Some(id))?;
        let before = self.record(name)?;
        // A tree's next generation has the same parent as the tree.
        let parent = match (base.filter(|base| base.name != *name), &before) {
            (Some(base), _) => Some(base.into()),
            (None, Some(before)) => before.parent.clone(),
            (None, None) => None,
        };
        let old = before.map(|record| record.layers).unwrap_or_default();
        let Choice { strategy, reason } = choice;
        let (format, name, made) = (FORMAT, name.clone(), super::now());
        let record = Record { format, name, generation, layers, strategy, reason, parent, made };
        self.write(&record)?;
        self.leave(id, &old);
        Ok(record)
    }

    /// Best effort: moves the session's directory and unreferenced layers to the trash. The
    /// next gc removes leftovers.
    fn leave(&self, id: &str, layers: &[Layer]) {
        let directory = self.session(id);
        // Usually nothing else is in the directory, and rmdir(2) suffices.
        let _ = fs::remove_file(directory.join(NOTE));
        let _ = fs::remove_file(directory.join(DEVICE));
        let _ = fs::remove_dir(directory.join(ROOT));
        if fs::remove_dir(&directory).is_err() {
            let _ = self.discard(&directory);
        }
        self.try_drop_unreferenced(
            &layers.iter().map(|layer| layer.id.clone()).collect::<Vec<_>>(),
        );
    }

    /// Best effort: moves the unreferenced layers among `layers`, given by id, to the trash.
    pub(crate) fn try_drop_unreferenced(&self, layers: &[String]) {
        let _ = self.drop_unreferenced(layers);
    }

    /// Returns the generation that a commit as `name` would make.
    ///
    /// # Errors
    /// `EEXIST` when the tree exists and is not `base`'s. Also when the tree has another
    /// generation than `base`, has uncommitted changes, or is in use: changes made by another
    /// command would be lost.
    pub fn next_generation(&self, name: &Name, base: Option<&Base>) -> Result<u64, Error> {
        self.generation_after(name, base, None)
    }

    /// Like [`Store::next_generation`], for session `own`, which may itself use the tree.
    fn generation_after(
        &self,
        name: &Name,
        base: Option<&Base>,
        own: Option<&str>,
    ) -> Result<u64, Error> {
        let Some(record) = self.record(name)? else { return Ok(1) };
        let refused = |why: String| Err(refuse("cannot commit as", name, io::Error::other(why)));
        match base.filter(|base| base.name == *name) {
            None => return Err(refuse("cannot make the tree", name, Errno::EXIST)),
            Some(base) if !base.is(&record) => {
                let (now, then) = (record.generation, base.generation);
                return refused(format!(
                    "it is at generation {now} by now, or another tree, and this began from {then}"
                ));
            }
            Some(_) => {}
        }
        if let Opened::Yes(_) = self.opened(&record)? {
            return refused("it has changes that are not committed".to_owned());
        }
        self.is_idle_but_for(name, own)?;
        Ok(record.generation + 1)
    }
}
