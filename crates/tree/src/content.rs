//! Compares the contents of layers with checksums, by what the disk has.

use crate::store::{Store, open_directory};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use synconce_durable::error::{Context, Error};
use synconce_durable::replace::{self, Rights};
use synconce_fs::{Checksums, Progress, ReadFrom};

/// The list of sha256sum(1), beside the content of a layer.
const LIST: &str = "sha256sums";

/// SHA-256 by path.
type Sums = BTreeMap<Vec<u8>, [u8; 32]>;

/// A file whose content is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlteredFile {
    /// Its path below the content of the layer.
    pub path: PathBuf,
    /// How its content differs.
    pub how: ContentAlteration,
}

/// How a content differs from its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentAlteration {
    /// It is other content.
    Changed,
    /// It cannot be read.
    Unread(Errno),
    /// It has no checksum: the file was made after the checksums were taken.
    New,
    /// It has a checksum, and the file is gone.
    Gone,
}

/// The checksums of a layer's content as it is, and the files that differ from the kept ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct SummedContent {
    pub(crate) files: Vec<AlteredFile>,
    sums: Checksums,
}

/// A line of a list of checksums is none: the cause of an error, found by
/// [`DamagedSums::in_error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedSums;

impl DamagedSums {
    /// Returns what is wrong with the list, if that is the cause of `error`.
    pub fn in_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for DamagedSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is no list of checksums")
    }
}

impl std::error::Error for DamagedSums {}

/// Whether checksums of layer `id` were taken.
pub(crate) fn has_sums(store: &Store, id: &str) -> bool {
    list(store, id).exists()
}

fn list(store: &Store, id: &str) -> PathBuf {
    store.layer(id).join(LIST)
}

/// Takes the checksums of layer `id` by what programs see, and keeps them durably. If files cannot
/// be read, no checksums are kept.
pub(crate) fn take(
    store: &Store,
    id: &str,
    progress: &dyn Progress,
) -> Result<SummedContent, Error> {
    let sums = of_layer(store, id, ReadFrom::Memory, progress)?;
    let files: Vec<_> = unread(&sums).collect();
    if files.is_empty() {
        let _lock = store.lock()?;
        // Another command may have taken them meanwhile.
        if !has_sums(store, id) {
            replace::create(&list(store, id), &list_of(&sums), Rights::common())?;
        }
    }
    Ok(SummedContent { files, sums })
}

/// Replaces the checksums of layer `id` by `summed`, durably.
///
/// # Errors
/// Names the file that could not be read, or the list.
pub(crate) fn keep(store: &Store, id: &str, summed: &SummedContent) -> Result<(), Error> {
    if let Some(AlteredFile { path, how: ContentAlteration::Unread(errno) }) =
        unread(&summed.sums).next()
    {
        return Err(Error::new("cannot accept", &store.content(id).join(path), errno));
    }
    let _lock = store.lock()?;
    replace::write(&list(store, id), &list_of(&summed.sums), Rights::common())
}

/// Returns the files that could not be read.
fn unread(sums: &Checksums) -> impl Iterator<Item = AlteredFile> {
    sums.iter().filter_map(|(name, sum)| {
        Some(AlteredFile { path: path_of(name), how: ContentAlteration::Unread(sum.err()?) })
    })
}

/// Returns the list of `sums`, without files that could not be read.
fn list_of(sums: &Checksums) -> Vec<u8> {
    synconce_fs::to_list(sums.iter().filter_map(|(name, sum)| Some((&name[..], sum.ok()?))))
}

/// Returns the files of layer `id` of which the disk has other content than its checksums say.
///
/// # Errors
/// Names the directory that cannot be read, or the list that is damaged.
pub(crate) fn altered(
    store: &Store,
    id: &str,
    progress: &dyn Progress,
) -> Result<SummedContent, Error> {
    let then = sums(store, id)?;
    let sums = of_layer(store, id, ReadFrom::Disk, progress)?;
    let names: BTreeSet<_> = then.keys().chain(sums.keys()).collect();
    let differs = |name: &Vec<u8>| {
        let how = match (then.get(name), sums.get(name)) {
            (Some(then), Some(Ok(now))) if now == then => return None,
            (Some(_), Some(Ok(_))) => ContentAlteration::Changed,
            (None, Some(Ok(_))) => ContentAlteration::New,
            (_, Some(Err(errno))) => ContentAlteration::Unread(*errno),
            (_, None) => ContentAlteration::Gone,
        };
        Some(AlteredFile { path: path_of(name), how })
    };
    let files = names.into_iter().filter_map(differs).collect();
    Ok(SummedContent { files, sums })
}

fn of_layer(
    store: &Store,
    id: &str,
    from: ReadFrom,
    progress: &dyn Progress,
) -> Result<Checksums, Error> {
    synconce_fs::checksums(open_directory(&store.content(id))?.as_fd(), from, progress)
}

/// Returns the checksums of layer `id`.
///
/// # Errors
/// Names the list that cannot be read.
fn sums(store: &Store, id: &str) -> Result<Sums, Error> {
    let path = list(store, id);
    let list = fs::read(&path).on("cannot read", &path)?;
    let sums = synconce_fs::from_list(&list);
    sums.ok_or_else(|| io::Error::other(DamagedSums)).on("cannot use", &path)
}

fn path_of(name: &[u8]) -> PathBuf {
    OsString::from_vec(name.to_vec()).into()
}
