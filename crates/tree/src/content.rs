//! Compares the contents of layers with checksums, by what the disk has.

use crate::store::{Store, open_directory};
use rustix::io::Errno;
use std::collections::BTreeMap;
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
    /// Why it cannot be read; none if it has other content.
    pub unread: Option<Errno>,
}

/// What is wrong with a list of checksums: the cause of an error, found by [`DamagedSums::in_error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamagedSums {
    /// A line is no line of such a list.
    NoList,
    /// The layer has more files than the list.
    Incomplete,
}

impl DamagedSums {
    /// Returns what is wrong with the list, if that is the cause of `error`.
    pub fn in_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for DamagedSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoList => "it is no list of checksums",
            Self::Incomplete => "it has not all files",
        })
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

/// Takes the checksums of layer `id` by what programs see, and keeps them durably. Returns the
/// files that cannot be read; no checksums are kept then.
///
/// # Errors
/// Names the act and path.
pub(crate) fn take(
    store: &Store,
    id: &str,
    progress: &dyn Progress,
) -> Result<Vec<AlteredFile>, Error> {
    match list_of(&of_layer(store, id, ReadFrom::Memory, progress)?) {
        Err(unread) => Ok(unread),
        Ok(text) => {
            let _lock = store.lock()?;
            // Another command may have taken them meanwhile.
            if !has_sums(store, id) {
                replace::create(&list(store, id), &text, Rights::common())?;
            }
            Ok(Vec::new())
        }
    }
}

/// Replaces the checksums of layer `id` by those of what the disk has, durably.
///
/// # Errors
/// Names the file that cannot be read, or the list.
pub(crate) fn take_anew(store: &Store, id: &str, progress: &dyn Progress) -> Result<(), Error> {
    let now = list_of(&of_layer(store, id, ReadFrom::Disk, progress)?);
    let text = now.map_err(|unread| {
        let first = unread.into_iter().next();
        let (path, errno) = first.map(|file| (file.path, file.unread)).unwrap_or_default();
        Error::new("cannot accept", &store.content(id).join(path), errno.unwrap_or(Errno::IO))
    })?;
    let _lock = store.lock()?;
    replace::write(&list(store, id), &text, Rights::common())
}

/// Returns the list of `sums`, or the files that cannot be read.
fn list_of(sums: &Checksums) -> Result<Vec<u8>, Vec<AlteredFile>> {
    let unread = sums.iter().filter_map(|(name, sum)| Some((name, sum.err()?)));
    let unread: Vec<_> = unread
        .map(|(name, errno)| AlteredFile { path: path_of(name), unread: Some(errno) })
        .collect();
    if !unread.is_empty() {
        return Err(unread);
    }
    Ok(synconce_fs::to_list(sums.iter().filter_map(|(name, sum)| Some((&name[..], sum.ok()?)))))
}

/// Returns the files of layer `id` of which the disk has other content than its checksums say.
///
/// # Errors
/// Names the directory that cannot be read, or the list that is damaged.
pub(crate) fn altered(
    store: &Store,
    id: &str,
    progress: &dyn Progress,
) -> Result<Vec<AlteredFile>, Error> {
    let then = sums(store, id)?;
    let now = of_layer(store, id, ReadFrom::Disk, progress)?;
    // A new file is a change of its directory.
    if now.len() > then.len() {
        return Err(io::Error::other(DamagedSums::Incomplete)).on("cannot use", &list(store, id));
    }
    let differs = |(name, sum): (&Vec<u8>, &[u8; 32])| {
        let unread = match now.get(name) {
            Some(Ok(now)) if now == sum => return None,
            Some(now) => now.err(),
            None => Some(Errno::NOENT),
        };
        Some(AlteredFile { path: path_of(name), unread })
    };
    Ok(then.iter().filter_map(differs).collect())
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
    sums.ok_or_else(|| io::Error::other(DamagedSums::NoList)).on("cannot use", &path)
}

fn path_of(name: &[u8]) -> PathBuf {
    OsString::from_vec(name.to_vec()).into()
}
