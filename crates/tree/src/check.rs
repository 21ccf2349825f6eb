//! Compares layers with their fingerprints and checksums, and a store with its records.

use crate::content::{self, AlteredFile, SummedContent};
use crate::layer::{self, Alteration};
use crate::pin::{Pin, TO_COMPARE};
use crate::read::{Reading, read_all};
use crate::record::{Layer, TreeName, TreeRecord};
use crate::store::{CONTENT, LAYERS, Store, TREES, open_directory};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_fs::Progress;

/// A layer that is not as it was frozen.
#[derive(Clone, Debug)]
pub struct Altered {
    /// The layer's name in the store.
    id: String,
    /// The layer's content.
    pub layer: PathBuf,
    /// The layer's fingerprint: an entry that a call has changed since has a later ctime than this file.
    pub fingerprint: PathBuf,
    /// How the layer differs from its fingerprint, if it does.
    pub alteration: Option<Alteration>,
    /// The content, if contents were compared.
    content: SummedContent,
}

impl Altered {
    /// Returns the files whose content differs, if contents were compared.
    pub fn files(&self) -> &[AlteredFile] {
        &self.content.files
    }
}

/// What [`verify`] found. The layers stay in the store until this value is dropped.
#[derive(Debug)]
pub struct Verified<'a> {
    /// The layers that differ.
    pub altered: Vec<Altered>,
    /// The number of layers that had no checksums, and have them now.
    pub summed: usize,
    store: &'a Store,
    _reading: Reading<'a>,
}

impl Verified<'_> {
    /// Takes the fingerprints of the layers that differ anew, durably: their content is right as it
    /// is. A snapshot that was made writable becomes read-only. If contents were compared, the
    /// checksums that [`verify`] found in layers with other files are kept, too.
    ///
    /// # Errors
    /// A file that differs cannot be read.
    pub fn accept(&self, progress: &dyn Progress) -> Result<(), Error> {
        for Altered { id, alteration, content, .. } in &self.altered {
            if !content.files.is_empty() {
                content::keep(self.store, id, content)?;
            }
            if alteration.is_some() {
                layer::accept(self.store, id, progress)?;
            }
        }
        Ok(())
    }

    /// Returns the other trees than `name` that have a layer which differs.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn others_with_altered(&self, name: &TreeName) -> Result<Vec<TreeName>, Error> {
        let (records, _) = self.store.records()?;
        let is_altered = |id: &String| self.altered.iter().any(|one| one.id == *id);
        let others = records.into_iter().filter(|record| record.name != *name);
        let others = others.filter(|record| record.layer_ids().iter().any(is_altered));
        Ok(others.map(|record| record.name).collect())
    }
}

/// What [`verify`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Owner, mode, size, times and inode number of each entry.
    Attributes,
    /// Also what the disk has of each committed file, with its checksum.
    Contents,
}

/// Compares each entry of the layers of the tree, of all its generations, with the layer's
/// fingerprint, and returns the layers that differ. Before contents are compared, a layer without
/// checksums gets them, if it is as it was frozen and all of it can be read.
pub fn verify<'a>(
    store: &'a Store,
    name: &TreeName,
    compare: Compare,
    progress: &dyn Progress,
) -> Result<Verified<'a>, Error> {
    let (mut all, mut summed) = (Vec::new(), 0);
    let sync = || Pin::new(store.path())?.sync(store, TO_COMPARE);
    let reading = read_all(store, name)?;
    let (committed, older) = (reading.committed(), reading.older());
    let is_durable = |layer: &Layer| committed.contains(layer) || older.contains(layer);
    let mut looked_at = HashSet::new();
    for layer in due(store, &reading) {
        if !looked_at.insert(&layer.id) {
            continue;
        }
        let alteration = layer::alteration(store, &layer.id, &sync, progress)?;
        let mut content = SummedContent::default();
        if compare == Compare::Contents && is_durable(layer) {
            if !content::has_sums(store, &layer.id) && alteration.is_none() {
                content = content::take(store, &layer.id, progress)?;
                summed += usize::from(content.files.is_empty());
            }
            if content::has_sums(store, &layer.id) {
                content = content::altered(store, &layer.id, progress)?;
            }
        }
        if alteration.is_some() || !content.files.is_empty() {
            let fingerprint = layer::fingerprint_path(store, &layer.id);
            let (id, layer) = (layer.id.clone(), store.content(&layer.id));
            all.push(Altered { id, layer, fingerprint, alteration, content });
        }
    }
    Ok(Verified { altered: all, summed, store, _reading: reading })
}

/// Returns the layers that have a fingerprint: committed ones, and those of runs that have taken one.
/// A layer may occur several times.
fn due<'a>(store: &'a Store, reading: &'a Reading<'_>) -> impl Iterator<Item = &'a Layer> {
    let open = reading.source().layers.iter();
    let open = open.filter(|layer| layer::has_fingerprint(store, &layer.id));
    reading.committed().iter().chain(open).chain(reading.older())
}

/// Returns whether [`verify`] of the tree `name`, or [`fsck`] without a name, syncs: a layer is a
/// snapshot that was not verified yet.
pub fn verify_syncs(store: &Store, name: Option<&TreeName>) -> Result<bool, Error> {
    let names = match name {
        Some(name) => vec![name.clone()],
        None => store.records()?.0.into_iter().map(|record| record.name).collect(),
    };
    for name in &names {
        match read_all(store, name) {
            // The tree was removed meanwhile.
            Err(error) if error.io().kind() == io::ErrorKind::NotFound => {}
            reading => {
                let reading = reading?;
                if due(store, &reading).any(|layer| layer::is_by_number(store, &layer.id)) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Adds what is wrong with the store to `faults`, in the order in which it is found. Each tree is
/// checked as of one moment; other commands may change the tree meanwhile. After a sync that fails,
/// no other layer that needs one is checked: a disk that does not answer is waited for once.
///
/// # Errors
/// The store cannot be read; `ECANCELED`. `faults` has what was found before.
pub fn fsck(store: &Store, faults: &mut Vec<Error>, progress: &dyn Progress) -> Result<(), Error> {
    let (records, of_records) = store.records()?;
    faults.extend(of_records);
    let mut looked_at = HashSet::new();
    let (has_failed, mut left_out) = (Cell::new(false), 0);
    let sync = || {
        let synced = Pin::new(store.path()).and_then(|pin| pin.sync(store, TO_COMPARE));
        synced.inspect_err(|_| has_failed.set(true))
    };
    for TreeRecord { name, .. } in &records {
        let reading = match read_all(store, name) {
            // The tree was removed meanwhile.
            Err(error) if error.io().kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for layer in due(store, &reading) {
            if !looked_at.insert(layer.id.clone()) {
                continue;
            }
            if has_failed.get() && layer::is_by_number(store, &layer.id) {
                left_out += 1;
                faults.extend(is_there(store, layer).err());
            } else {
                faults.extend(fault_of(store, layer, &sync, progress)?);
            }
        }
        if reading.committed().is_empty() {
            let path = store.path().join(TREES).join(name.as_str());
            faults.push(Error::new("no layer in", &path, Errno::NOENT));
        }
    }
    if left_out > 0 {
        let why = io::Error::other(format!("a sync failed; not compared: {left_out}"));
        faults.push(Error::new("cannot compare all of", &store.path().join(LAYERS), why));
    }
    Ok(())
}

fn fault_of(
    store: &Store,
    layer: &Layer,
    sync: layer::Sync<'_>,
    progress: &dyn Progress,
) -> Result<Option<Error>, Error> {
    if let Err(error) = is_there(store, layer) {
        return Ok(Some(error));
    }
    let altered =
        |path: &Path, why: String| Some(Error::new("altered below", path, io::Error::other(why)));
    let content = store.content(&layer.id);
    Ok(match layer::alteration(store, &layer.id, sync, progress) {
        // The end of the check is no fault of the layer.
        Err(error) if error.io().raw_os_error() == Some(Errno::CANCELED.raw_os_error()) => {
            return Err(error);
        }
        Err(error) => Some(error),
        Ok(None) => None,
        Ok(Some(Alteration::Entries(directories))) => {
            let why = match directories.len() {
                1 => "1 directory is not as it was frozen".to_owned(),
                count => format!("{count} directories are not as they were frozen"),
            };
            altered(&content.join(&directories[0]), why)
        }
        Ok(Some(other)) => altered(&content, format!("it {other}")),
    })
}

fn is_there(store: &Store, layer: &Layer) -> Result<(), Error> {
    let directory = open_directory(&store.layer(&layer.id))?;
    let path = store.content(&layer.id);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let content = rustix::fs::openat(&directory, CONTENT, flags, Mode::empty());
    let content = content.on("cannot open", &path)?;
    let mode = rustix::fs::fstat(&content).on("cannot look at", &path)?.st_mode;
    match FileType::from_raw_mode(mode) {
        FileType::Directory => Ok(()),
        _ => Err(Error::new("cannot use", &path, Errno::NOTDIR)),
    }
}
