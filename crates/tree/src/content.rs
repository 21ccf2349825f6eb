//! Compares the contents of layers with checksums, by what the disk has.

use crate::store::{Store, open_directory};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use synconce_durable::error::{Context, Error};
use synconce_durable::replace::{self, Rights};
use synconce_fs::{Progress, ReadFrom};

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

/// Whether checksums of layer `id` were taken.
pub(crate) fn has_sums(store: &Store, id: &str) -> bool {
    list(store, id).exists()
}

fn list(store: &Store, id: &str) -> PathBuf {
    store.layer(id).join(LIST)
}

/// Takes the checksums of layer `id`, which has none, by what programs see, and keeps them durably.
///
/// # Errors
/// Names the act and path. No checksums are kept if a file cannot be read.
pub(crate) fn take(store: &Store, id: &str, progress: &dyn Progress) -> Result<(), Error> {
    let content = store.content(id);
    let now =
        synconce_fs::checksums(open_directory(&content)?.as_fd(), ReadFrom::Memory, progress)?;
    let mut sums = Vec::new();
    for (name, sum) in &now {
        sums.push((&name[..], sum.on("cannot read", &content.join(path_of(name)))?));
    }
    replace::create(&list(store, id), &synconce_fs::to_list(sums), Rights::common())
}

/// Returns the files of layer `id` of which the disk has other content than its checksums say. A new
/// file is a change of its directory.
///
/// # Errors
/// Names the directory that cannot be read.
pub(crate) fn altered(
    store: &Store,
    id: &str,
    progress: &dyn Progress,
) -> Result<Vec<AlteredFile>, Error> {
    let then = sums(store, id)?;
    let now = synconce_fs::checksums(
        open_directory(&store.content(id))?.as_fd(),
        ReadFrom::Disk,
        progress,
    )?;
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

/// Returns the checksums of layer `id`.
///
/// # Errors
/// Names the list that cannot be read.
fn sums(store: &Store, id: &str) -> Result<Sums, Error> {
    let path = list(store, id);
    let invalid = || io::Error::new(ErrorKind::InvalidData, "it is no list of checksums");
    let list = fs::read(&path).on("cannot read", &path)?;
    synconce_fs::from_list(&list).ok_or_else(invalid).on("cannot use", &path)
}

fn path_of(name: &[u8]) -> PathBuf {
    OsString::from_vec(name.to_vec()).into()
}
