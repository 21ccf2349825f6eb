//! Compares layers with their fingerprints and checksums, and a store with its records.

use crate::content::{self, AlteredFile};
use crate::layer;
use crate::read::{Reading, read_all};
use crate::record::{Layer, TreeName, TreeRecord};
use crate::store::{CONTENT, Store, TREES, open_directory};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_fs::Progress;

/// How a layer differs from its fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// Entries differ in these directories below the content.
    Entries(Vec<PathBuf>),
    /// btrfs has counted a change of the snapshot.
    Counted,
    /// The snapshot is no longer read-only.
    Writable,
    /// The content is not the snapshot that was frozen.
    Replaced,
}

impl fmt::Display for Alteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Entries(_) | Self::Counted => "has changed since it was frozen",
            Self::Writable => "was made writable after it was frozen",
            Self::Replaced => "is another subvolume or directory than was frozen",
        })
    }
}

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
    /// The files whose content differs, if contents were compared.
    pub files: Vec<AlteredFile>,
}

/// What [`verify`] found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// The layers that differ.
    pub altered: Vec<Altered>,
    /// The number of layers that had no checksums, and have them now.
    pub summed: usize,
}

/// Compares each entry of the layers of the tree, of all its generations, with the layer's
/// fingerprint, and returns the layers that differ. Owner, mode, size, times and inode number are
/// compared.
///
/// With `contents` what the disk has of each committed file is compared with its checksum. A layer
/// without checksums gets them before, if it is as it was frozen and all of it can be read.
///
/// # Errors
/// The error names the act and the path.
pub fn verify(
    store: &Store,
    name: &TreeName,
    contents: bool,
    progress: &dyn Progress,
) -> Result<Verified, Error> {
    let mut verified = Verified::default();
    let reading = read_all(store, name)?;
    let (committed, older) = (reading.committed(), reading.older());
    let is_durable = |layer: &Layer| committed.contains(layer) || older.contains(layer);
    let mut looked_at = HashSet::new();
    for layer in due(store, &reading) {
        if !looked_at.insert(&layer.id) {
            continue;
        }
        let alteration = layer::alteration(store, &layer.id, progress)?;
        let mut files = Vec::new();
        if contents && is_durable(layer) {
            if !content::has_sums(store, &layer.id) && alteration.is_none() {
                files = content::take(store, &layer.id, progress)?;
                verified.summed += usize::from(files.is_empty());
            }
            if content::has_sums(store, &layer.id) {
                files = content::altered(store, &layer.id, progress)?;
            }
        }
        if alteration.is_some() || !files.is_empty() {
            let fingerprint = layer::fingerprint_path(store, &layer.id);
            let (id, layer) = (layer.id.clone(), store.content(&layer.id));
            verified.altered.push(Altered { id, layer, fingerprint, alteration, files });
        }
    }
    Ok(verified)
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
///
/// # Errors
/// The error names the act and the path.
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

/// Takes the fingerprints of `altered` anew, durably: the content of these layers is right as it is.
/// A snapshot that was made writable becomes read-only.
///
/// # Errors
/// The error names the act and the path.
pub fn accept(store: &Store, altered: &[Altered], progress: &dyn Progress) -> Result<(), Error> {
    altered.iter().try_for_each(|one| layer::accept(store, &one.id, progress))
}

/// Returns what is wrong with the store, in the order in which it was found. Each tree is
/// checked as of one moment; other commands may change the tree meanwhile.
///
/// # Errors
/// The store cannot be read.
pub fn fsck(store: &Store, progress: &dyn Progress) -> Result<Vec<Error>, Error> {
    let (records, mut faults) = store.records()?;
    let mut looked_at = HashSet::new();
    for TreeRecord { name, .. } in &records {
        let reading = match read_all(store, name) {
            // The tree was removed meanwhile.
            Err(error) if error.io().kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for layer in due(store, &reading) {
            if looked_at.insert(layer.id.clone()) {
                faults.extend(fault_of(store, layer, progress));
            }
        }
        if reading.committed().is_empty() {
            let path = store.path().join(TREES).join(name.as_str());
            faults.push(Error::new("no layer in", &path, Errno::NOENT));
        }
    }
    Ok(faults)
}

fn fault_of(store: &Store, layer: &Layer, progress: &dyn Progress) -> Option<Error> {
    if let Err(error) = is_there(store, layer) {
        return Some(error);
    }
    let altered =
        |path: &Path, why: String| Some(Error::new("altered below", path, io::Error::other(why)));
    let content = store.content(&layer.id);
    match layer::alteration(store, &layer.id, progress) {
        Err(error) => Some(error),
        Ok(None) => None,
        Ok(Some(Alteration::Entries(directories))) => {
            let why = format!("{} directories are not as they were frozen", directories.len());
            altered(&content.join(&directories[0]), why)
        }
        Ok(Some(other)) => altered(&content, format!("it {other}")),
    }
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
