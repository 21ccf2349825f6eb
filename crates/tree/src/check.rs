//! Compares layers with their fingerprints and checksums, and a store with its records.

use crate::content::{self, AlteredFile};
use crate::layer;
use crate::read::read_all;
use crate::record::{Layer, TreeName, TreeRecord};
use crate::store::{CONTENT, Store, TREES, open_directory};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use synconce_durable::error::{Context, Error};
use synconce_fs::Progress;

/// A layer that differs from its fingerprint.
#[derive(Clone, Debug)]
pub struct Altered {
    /// The layer's content.
    pub layer: PathBuf,
    /// The layer's fingerprint: an entry that a call has changed since has a later ctime than this file.
    pub fingerprint: PathBuf,
    /// The directories below the content in which something differs.
    pub directories: Vec<PathBuf>,
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
    let is_due = |layer: &&Layer| is_durable(layer) || layer::has_fingerprint(store, &layer.id);
    let current = reading.source().layers.iter().filter(is_due);
    let mut looked_at = HashSet::new();
    for layer in current.chain(older) {
        if !looked_at.insert(&layer.id) {
            continue;
        }
        let directories = layer::altered(store, &layer.id, progress)?;
        let mut files = Vec::new();
        if contents && is_durable(layer) {
            if !content::has_sums(store, &layer.id) && directories.is_empty() {
                files = content::take(store, &layer.id, progress)?;
                verified.summed += usize::from(files.is_empty());
            }
            if content::has_sums(store, &layer.id) {
                files = content::altered(store, &layer.id, progress)?;
            }
        }
        if !directories.is_empty() || !files.is_empty() {
            let fingerprint = layer::fingerprint_path(store, &layer.id);
            let layer = store.content(&layer.id);
            verified.altered.push(Altered { layer, fingerprint, directories, files });
        }
    }
    Ok(verified)
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
        let committed = reading.committed();
        let open = reading.source().layers.iter();
        let open = open.filter(|layer| layer::has_fingerprint(store, &layer.id));
        for layer in committed.iter().chain(open).chain(reading.older()) {
            if looked_at.insert(layer.id.clone()) {
                faults.extend(fault_of(store, layer, progress));
            }
        }
        if committed.is_empty() {
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
    match layer::altered(store, &layer.id, progress) {
        Err(error) => Some(error),
        Ok(altered) if altered.is_empty() => None,
        Ok(altered) => {
            let path = store.content(&layer.id).join(&altered[0]);
            let why = format!("{} directories are not as they were frozen", altered.len());
            Some(Error::new("altered below", &path, io::Error::other(why)))
        }
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
