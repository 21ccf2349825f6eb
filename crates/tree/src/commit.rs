//! Operations on whole trees: import, clone, commit, squash, remove.

use crate::layer::Links;
use crate::pin::Pin;
use crate::record::{BadName, FORMAT, Name, Parent, Purpose, Record};
use crate::session::{Base, Session, Source, now, refuse};
use crate::store::{self, Opened, Store, open_directory};
use crate::strategy::{Choice, Strategy};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use synconce_durable::error::Error;
use synconce_durable::mutant;
use synconce_fs::{CopyOptions, CopyReport, Progress};

/// The longest part of the base's name that a clone's generated name keeps.
const LONGEST_STEM: usize = 100;

/// What an importer reports about the content of a new tree.
pub trait ImportReport {
    /// Returns whether the content has character devices 0:0, which an overlay shows as
    /// removed files.
    fn has_whiteouts(&self) -> bool;
}

impl Store {
    /// Makes the tree `name` from what `fill` writes into an empty directory.
    ///
    /// # Errors
    /// `EEXIST` when the tree exists; the errors of `fill`. The error names the act and the
    /// path. No tree is made then.
    pub fn import<T>(
        &self,
        name: &Name,
        wanted: Option<Strategy>,
        progress: &dyn Progress,
        fill: impl FnOnce(BorrowedFd<'_>) -> Result<T, Error>,
    ) -> Result<(Record, T), Error>
    where
        T: ImportReport,
    {
        let session = {
            let _lock = self.lock()?;
            self.next_generation(name, None)?;
            let from = name.to_string();
            let layers = Vec::new();
            let source = Source { tree: None, from, layers, strategy: Strategy::Copy, base: None };
            self.begin(&source, Strategy::Copy, Purpose::Import)?
        };
        let of = wanted.unwrap_or(Strategy::Snapshot);
        let filled = session.make_whole(of).and_then(|whole| {
            let directory = open_directory(&whole)?;
            let choice = self.choose_for(directory.as_fd(), wanted)?;
            let told = fill(directory.as_fd())?;
            let choice = match told.has_whiteouts() && choice.strategy == Strategy::Overlay {
                true => self.choose_despite_whiteouts(wanted)?,
                false => choice,
            };
            Ok((told, choice))
        });
        match filled {
            Ok((told, Choice { strategy, reason })) => {
                let record =
                    session.commit_by(name, None, Choice { strategy, reason }, progress)?;
                Ok((record, told))
            }
            Err(error) => session.discard().and(Err(error)),
        }
    }

    /// Makes the tree `name` from the committed tree `base`, without copying anything.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`. The error names the act and the path.
    pub fn clone_tree(
        &self,
        base: &Name,
        name: &Name,
        wanted: Option<Strategy>,
    ) -> Result<Record, Error> {
        let _lock = self.lock()?;
        let source = self.committed(base)?;
        if self.record(name)?.is_some() {
            return Err(refuse("cannot clone to", name, Errno::EXIST));
        }
        let Choice { strategy, reason } = match wanted {
            Some(_) => self.choose(&source.layers, wanted)?,
            // The layers are the base's, so the base's strategy works for the clone.
            None => {
                let Record { strategy, reason, .. } = self.existing(base)?;
                Choice { strategy, reason }
            }
        };
        let parent = source.base.map(Parent::from);
        let (name, layers, made) = (name.clone(), source.layers, now());
        let format = FORMAT;
        let record = Record { format, name, generation: 1, layers, strategy, reason, parent, made };
        self.write(&record)?;
        Ok(record)
    }

    /// Returns a free name for a clone of `base`.
    ///
    /// # Errors
    /// The error names the act and the path.
    pub fn new_name(&self, base: &Name) -> Result<Name, Error> {
        let id = store::new_id()?;
        let stem: String = base.as_str().chars().take(LONGEST_STEM).collect();
        let name = format!("{stem}-{}", &id[..8]);
        name.parse().map_err(|error: BadName| {
            refuse("cannot name a clone of", base, io::Error::other(error))
        })
    }

    /// Makes the uncommitted changes of `name` durable, as the next generation of `name` or as
    /// the new tree `new`. With `new`, `name` is back at its last generation.
    ///
    /// # Errors
    /// The error names the act and the path, write-back errors included; `name` is then
    /// unchanged.
    pub fn commit(
        &self,
        name: &Name,
        new: Option<&Name>,
        progress: &dyn Progress,
    ) -> Result<Record, Error> {
        let pin = Pin::new(self.path())?;
        let lock = self.lock()?;
        let reading = self.reading_of(self.current(name)?)?;
        drop(lock);
        let source = reading.source().clone();
        if let Some(new) = new {
            self.next_generation(new, None)?;
        }
        self.fingerprint_all(&source.layers, Links::Own, progress)?;
        let mut pin = Some(pin);
        let late = pin.take_if(|_| mutant::is("tree-record-first"));
        pin.map_or(Ok(()), Pin::sync)?;
        drop(reading);
        let _lock = self.lock()?;
        let now_there = self.current(name)?;
        if now_there.layers != source.layers || now_there.base != source.base {
            let why = io::Error::other("somebody else changed it meanwhile");
            return Err(refuse("cannot commit", name, why));
        }
        let mut record = self.existing(name)?;
        let old = record.layers.clone();
        match new {
            Some(new) => {
                self.next_generation(new, None)?;
                let parent = Parent { name: name.clone(), generation: record.generation };
                record.parent = Some(parent);
                record.name = new.clone();
                record.generation = 1;
            }
            None if old == source.layers => return Ok(record),
            None => record.generation += 1,
        }
        record.layers = source.layers;
        record.made = now();
        self.write(&record)?;
        late.map_or(Ok(()), Pin::sync)?;
        match new {
            Some(_) => self.close_durably(name)?,
            None => self.close(name)?,
        }
        self.try_drop_unreferenced(&old.into_iter().map(|layer| layer.id).collect::<Vec<_>>());
        Ok(record)
    }

    /// Merges the stack of `name` into one whole layer, as the next generation.
    ///
    /// # Errors
    /// The error names the act and the path; the tree is then unchanged.
    pub fn squash(&self, name: &Name, progress: &dyn Progress) -> Result<Record, Error> {
        let session = {
            let _lock = self.lock()?;
            let mut source = self.committed(name)?;
            self.is_idle(name)?;
            source.tree = Some(name.clone());
            self.begin(&source, Strategy::Copy, Purpose::Run)?
        };
        match self.fill_squashed(&session, name, progress) {
            Ok((base, choice)) => session.commit_by(name, Some(base), choice, progress),
            Err(error) => session.discard().and(Err(error)),
        }
    }

    fn fill_squashed(
        &self,
        session: &Session<'_>,
        name: &Name,
        progress: &dyn Progress,
    ) -> Result<(Base, Choice), Error> {
        let record = self.existing(name)?;
        let Record { strategy, ref reason, .. } = record;
        let whole = open_directory(&session.make_whole(strategy)?)?;
        let options = CopyOptions::default();
        let view = self.view(&record.layers)?;
        settled(&synconce_fs::copy(view.as_fd(), whole.as_fd(), &options, progress)?, self.path())?;
        let base = Base::of(&record);
        let choice = match self.choose_for(whole.as_fd(), Some(strategy)) {
            Ok(_) => Choice { strategy, reason: reason.clone() },
            Err(_) => self.choose_for(whole.as_fd(), None)?,
        };
        Ok((base, choice))
    }

    /// Removes the tree `name`, and moves layers that no other tree uses to the trash.
    ///
    /// # Errors
    /// `ENOENT`. The error names the act and the path.
    pub fn remove_tree(&self, name: &Name) -> Result<(), Error> {
        let _lock = self.lock()?;
        let record = self.record(name);
        let mut layers: Vec<String> = Vec::new();
        // A tree whose record cannot be read can be removed; `gc` finds its layers.
        if let Ok(record) = &record {
            let record =
                record.as_ref().ok_or_else(|| refuse("there is no tree", name, Errno::NOENT))?;
            self.is_idle(name)?;
            layers.extend(record.layers.iter().map(|layer| layer.id.clone()));
            if let Opened::Yes(open) = self.opened(record)? {
                layers.extend(open.into_iter().map(|layer| layer.id));
            }
        }
        self.forget(name)?;
        layers.sort_unstable();
        layers.dedup();
        self.try_drop_unreferenced(&layers);
        Ok(())
    }
}

/// Fails if a source that nothing else may write changed during the copy, or if not all of the
/// source could be copied.
pub(crate) fn settled(report: &CopyReport, path: &Path) -> Result<(), Error> {
    if !report.changed.is_empty() {
        return Err(Error::new("cannot copy", path, Errno::STALE));
    }
    match (report.devices.first(), report.attributes.first()) {
        (Some(device), _) => Err(Error::new("cannot make the device node", device, Errno::PERM)),
        (_, Some(path)) => Err(Error::new("cannot set all attributes of", path, Errno::PERM)),
        (None, None) => Ok(()),
    }
}
