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

/// A layer that has changed since it was frozen.
#[derive(Clone, Debug)]
pub struct Altered {
    /// The layer's name in the store, and what it holds.
    entry: Layer,
    /// The layer's content.
    pub layer: PathBuf,
    /// The file with the layer's fingerprint. An entry that a system call changed after the freeze
    /// has a later ctime than this file.
    pub fingerprint: PathBuf,
    /// How the layer differs from its fingerprint, if it does.
    pub alteration: Option<Alteration>,
    /// The checksums and the files that differ; empty if contents were not compared.
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
    /// The number of layers whose checksums [`verify`] took.
    pub summed: usize,
    store: &'a Store,
    _reading: Reading<'a>,
}

impl Verified<'_> {
    /// Accepts the layers that differ: takes their fingerprints anew, durably, and makes writable
    /// snapshots read-only. If contents were compared, also replaces the checksums of layers whose
    /// files differ by those that [`verify`] computed.
    ///
    /// # Errors
    /// A file that differs cannot be read.
    pub fn accept(&self, progress: &dyn Progress) -> Result<(), Error> {
        for Altered { entry, alteration, content, .. } in &self.altered {
            if !content.files.is_empty() {
                content::keep(self.store, &entry.id, content)?;
            }
            if alteration.is_some() {
                layer::accept(self.store, entry, progress)?;
            }
        }
        Ok(())
    }

    /// Returns the trees other than `name` that share a layer that differs.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn others_with_altered(&self, name: &TreeName) -> Result<Vec<TreeName>, Error> {
        let (records, _) = self.store.records()?;
        let is_altered = |id: &String| self.altered.iter().any(|one| one.entry.id == *id);
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
    /// Also the content of each committed file, read from the disk, with its checksum.
    Contents,
}

/// Compares the entries of the tree's layers, in all generations, with the layers' fingerprints,
/// and returns the layers that differ. If contents are compared, first takes the checksums of each
/// layer that has none, is unchanged and can be read.
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
            let (entry, layer) = (layer.clone(), store.content(&layer.id));
            all.push(Altered { entry, layer, fingerprint, alteration, content });
        }
    }
    Ok(Verified { altered: all, summed, store, _reading: reading })
}

/// Returns the layers that have a fingerprint: all committed layers, and the uncommitted layers
/// whose fingerprint was taken. A layer may occur several times.
fn due<'a>(store: &'a Store, reading: &'a Reading<'_>) -> impl Iterator<Item = &'a Layer> {
    let open = reading.source().layers.iter();
    let open = open.filter(|layer| layer::has_fingerprint(store, &layer.id));
    reading.committed().iter().chain(open).chain(reading.older())
}

/// Returns whether [`verify`] of the tree `name`, or [`fsck`] if there is no name, syncs. A sync is
/// needed only for a snapshot whose fingerprint is still btrfs's number of the last change: no
/// check has found it unchanged yet.
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

/// Checks the store, and adds the faults to `faults` in the order in which they are found. Each
/// tree is checked as of one moment; other commands may change the tree meanwhile. After a failed
/// sync, layers whose comparison needs a sync are not compared, so that a dead disk delays the
/// check once.
///
/// # Errors
/// The store cannot be read, or `progress` cancels the check (`ECANCELED`). `faults` has the faults
/// that were found before.
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
        // A cancelled check is no fault of the layer.
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
