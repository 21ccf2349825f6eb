//! Reads bbolt databases: the check of every page, and the keys of a bucket.
//!
//! The layout is that of go.etcd.io/bbolt, in the byte order of this machine. [`check`]
//! returns damage for each file for which `bbolt check` reports an error. It also returns
//! damage where the content differs from what bbolt writes, although bbolt may not read that
//! place: see [`Problem`].
//!
//! The file is read by pread(2), through small buffers. Memory is used for the branches of the
//! tree on the way to the current page, and for a set of page ranges. A file that changes
//! during the check gives wrong results, so the database must not be in use.

mod damage;
mod freelist;
#[cfg(test)]
mod fuzz;
mod meta;
mod page;
mod page_set;
mod walk;
mod window;

pub use damage::{Damage, Problem};

use meta::Meta;
use page_set::PageSet;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::path::Path;
use walk::{Place, Walk};

/// What is in a whole database. All numbers are 0 for an empty file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The pages below the high water mark.
    pub pages: u64,
    /// The free pages. `None` if the database has no list of them (bbolt's `NoFreelistSync`).
    pub free: Option<u64>,
    /// The buckets, without the root bucket.
    pub buckets: u64,
    /// The keys of all buckets that are no names of buckets.
    pub keys: u64,
}

/// The reason why a step of a check ended.
enum Failure {
    Io(io::Error),
    Damage(Damage),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Damage> for Failure {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

type Checked<T> = Result<T, Failure>;

/// Checks every page of the database in the file `path`. An empty file is whole: bbolt makes
/// a database of it.
///
/// # Errors
/// Those of opening and reading the file. Damage is no error but a result.
pub fn check(path: &Path) -> io::Result<Result<Summary, Damage>> {
    settle(open(path).map_err(Failure::Io).and_then(|file| check_file(&file)))
}

/// Returns the first `at_most` keys of `bucket`, a bucket at the top of the database in the
/// file `path`; `None` if there is no such bucket.
///
/// # Errors
/// Those of opening and reading the file. Damage on the way to the keys is a result.
pub fn keys(
    path: &Path,
    bucket: &[u8],
    at_most: usize,
) -> io::Result<Result<Option<Vec<Vec<u8>>>, Damage>> {
    settle(open(path).map_err(Failure::Io).and_then(|file| keys_of(&file, bucket, at_most)))
}

/// Whether the file `path` has bbolt's magic number in a meta page.
///
/// # Errors
/// Those of opening and reading the file.
pub fn is_bolt(path: &Path) -> io::Result<bool> {
    let file = open(path)?;
    meta::has_magic(&file)
}

fn settle<T>(checked: Checked<T>) -> io::Result<Result<T, Damage>> {
    match checked {
        Ok(value) => Ok(Ok(value)),
        Err(Failure::Damage(damage)) => Ok(Err(damage)),
        Err(Failure::Io(error)) => Err(error),
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Without NONBLOCK an open of a FIFO waits for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

fn check_file(file: &File) -> Checked<Summary> {
    if file.metadata()?.len() == 0 {
        return Ok(Summary::default());
    }
    let meta = Meta::choose(file)?;
    let mut used = PageSet::default();
    used.insert(0, 2).map_err(|page| Damage::new(page, Problem::Twice))?;
    let freelist = freelist::open(file, &meta)?;
    if let Some(list) = &freelist {
        list.claim(&mut used)?;
    }
    let mut summary = Summary { pages: meta.high_water, ..Summary::default() };
    let mut walk = Walk::new(file, &meta, used);
    walk.run(Place::Page(meta.root), &mut |_, bucket| {
        match bucket {
            Some(_) => summary.buckets += 1,
            None => summary.keys += 1,
        }
        true
    })?;
    let mut used = walk.into_used();
    if let Some(list) = freelist {
        summary.free = Some(list.read(file, &meta, &mut used)?);
        if let Some(page) = used.first_gap(meta.high_water) {
            return Err(Damage::new(page, Problem::Unreachable).into());
        }
    }
    Ok(summary)
}

fn keys_of(file: &File, bucket: &[u8], at_most: usize) -> Checked<Option<Vec<Vec<u8>>>> {
    if file.metadata()?.len() == 0 {
        return Ok(None);
    }
    let meta = Meta::choose(file)?;
    let mut walk = Walk::new(file, &meta, PageSet::default());
    let mut found = None;
    walk.run(Place::Page(meta.root), &mut |name, place| {
        if name == bucket {
            found = place.copied();
        }
        false
    })?;
    let Some(place) = found else { return Ok(None) };
    let mut keys = Vec::new();
    walk.run(place, &mut |key, _| {
        if keys.len() < at_most {
            keys.push(key.to_vec());
        }
        false
    })?;
    Ok(Some(keys))
}
