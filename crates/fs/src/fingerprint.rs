//! Takes fingerprints of trees, which show whether a tree was changed.

mod escape;
mod order;

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FileType, Statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use synconce_sys::btrfs;

pub use self::order::compare_fingerprints;
use crate::Error;
use crate::Progress;
use crate::walk::directory::{Mounts, kind_of, look, look_at};
use crate::walk::node::{DirFds, anew, path_of_root, shown};
use crate::walk::tally::Tally;
use crate::walk::visitor::{At, Entered, Left, Visitor};
use crate::walk::walk;
use crate::xattrs::{Open, has_overlay_attributes};

/// A fingerprint of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fingerprint {
    /// The number of files of all kinds and directories, the root included.
    pub entries: u64,
    /// The bytes that the tree takes on the disk; a file with several names counts once.
    pub bytes: u64,
    /// The number of entries that an overlay takes for its own data: character devices 0:0, and
    /// directories with attributes of overlays. An overlay sets such attributes on each directory
    /// with files that have them.
    #[serde(default)]
    pub overlay_data: u64,
    /// The directories: the root first, each parent before its children, and children in the
    /// order of names. A map of paths would grow with the square of a tree's depth.
    pub directories: Vec<Fingerprinted>,
}

/// A directory of a [`Fingerprint`]. In JSON, an array of three.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, String, String)", into = "(u32, String, String)")]
pub struct Fingerprinted {
    /// The index of the parent directory; the root's own index for the root.
    pub parent: u32,
    /// The directory's name; empty for the root.
    pub name: Vec<u8>,
    /// The digest of the attributes from statx(2) of all entries, without access times.
    pub digest: u128,
}

impl From<Fingerprinted> for (u32, String, String) {
    fn from(directory: Fingerprinted) -> Self {
        let digest = format!("{:032x}", directory.digest);
        (directory.parent, escape::escape(&directory.name), digest)
    }
}

impl From<(u32, String, String)> for Fingerprinted {
    /// An invalid digest becomes 0, which the comparison reports as a change.
    fn from((parent, name, digest): (u32, String, String)) -> Self {
        let digest = u128::from_str_radix(&digest, 16).unwrap_or_default();
        Self { parent, name: escape::unescape(&name), digest }
    }
}

/// Takes the fingerprint of the tree in the directory `tree` by so many `threads`, by one statx(2)
/// per entry and one flistxattr(2) per directory, without reading contents. Changes of extended
/// attributes show in the ctime.
///
/// A rename of `tree` itself changes the fingerprint of the root. Mounts are not crossed; a
/// mount point changes the fingerprint.
///
/// # Errors
/// A directory cannot be read; `ECANCELED`.
pub fn fingerprint(
    tree: BorrowedFd<'_>,
    threads: usize,
    progress: &dyn Progress,
) -> Result<Fingerprint, Error> {
    let root = DirFds { first: anew(tree)?, second: None };
    let fingerprinting = Fingerprinting {
        tree,
        is_btrfs: btrfs::is_btrfs(tree).unwrap_or(false),
        progress,
        next: AtomicU32::new(1),
        sum: Mutex::default(),
    };
    let stat = look_at(&root.first)
        .map_err(|errno| Error::new("cannot look at", &path_of_root(tree), errno))?;
    let sheet = Sheet::new(0);
    sheet.add(&fingerprinting.digest(c"", &stat));
    let blocks = stat.stx_blocks;
    walk(&fingerprinting, root, sheet, threads)?;
    let sum = fingerprinting.sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let linked: u64 = sum.linked.values().sum();
    Ok(Fingerprint {
        entries: sum.entries,
        bytes: (sum.blocks + linked + blocks) * 512,
        overlay_data: sum.overlay_data,
        directories: order::ordered(sum.directories),
    })
}

struct Fingerprinting<'a> {
    tree: BorrowedFd<'a>,
    is_btrfs: bool,
    progress: &'a dyn Progress,
    /// The next directory's number, which is above its parent's number.
    next: AtomicU32,
    sum: Mutex<Sum>,
}

/// The sums over the entries so far.
#[derive(Default)]
struct Sum {
    entries: u64,
    blocks: u64,
    overlay_data: u64,
    /// The blocks of inodes with several names.
    linked: HashMap<(u32, u32, u64), u64>,
    directories: Vec<(u32, Fingerprinted)>,
}

/// The digest of a directory while it is computed. The digests of entries are added up: the
/// sum depends neither on their order nor on the thread, and no digest has to be kept.
struct Sheet {
    number: u32,
    low: AtomicU64,
    high: AtomicU64,
}

impl Sheet {
    fn new(number: u32) -> Self {
        Self { number, low: AtomicU64::new(0), high: AtomicU64::new(0) }
    }

    fn add(&self, digest: &[u8]) {
        let half = |at: usize| {
            digest[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        self.low.fetch_add(half(0), Ordering::Relaxed);
        self.high.fetch_add(half(8), Ordering::Relaxed);
    }

    fn sum(&self) -> u128 {
        let half = |half: &AtomicU64| u128::from(half.load(Ordering::Relaxed));
        half(&self.high) << 64 | half(&self.low)
    }
}

struct FingerprintThread<'a> {
    tally: Tally<'a>,
    sum: Sum,
}

type HashedDirectory<'a, 's> = At<'a, Fingerprinting<'s>>;

impl Fingerprinting<'_> {
    /// Returns the digest of one entry. Values that depend on the machine or the mount, such
    /// as the device number, are left out.
    fn digest(&self, name: &CStr, stat: &Statx) -> [u8; 32] {
        let mut text = [0; 64];
        let (mut mtime, ctime) = (stat.stx_mtime, stat.stx_ctime);
        let (mut changed, mut nanoseconds) = (ctime.tv_sec, ctime.tv_nsec);
        if self.is_btrfs && stat.stx_ino == btrfs::EMPTY_DIRECTORY {
            (mtime.tv_sec, mtime.tv_nsec, changed, nanoseconds) = (0, 0, 0, 0);
        }
        let wide = [stat.stx_size, stat.stx_ino, mtime.tv_sec as u64, changed as u64];
        let narrow = [
            u32::from(stat.stx_mode),
            stat.stx_uid,
            stat.stx_gid,
            stat.stx_rdev_major,
            stat.stx_rdev_minor,
            stat.stx_nlink,
            mtime.tv_nsec,
            nanoseconds,
        ];
        for (place, value) in text.chunks_exact_mut(8).zip(wide) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        for (place, value) in text[32..].chunks_exact_mut(4).zip(narrow) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        Sha256::new().chain_update(text).chain_update(name.to_bytes()).finalize().into()
    }

    /// Adds an entry to the directory's digest and returns its kind, or `None` if it is gone.
    fn look(
        &self,
        at: &HashedDirectory<'_, '_>,
        own: &mut FingerprintThread<'_>,
        name: &CStr,
    ) -> Result<Option<FileType>, Error> {
        let stat = match look(at.pair.first(), name) {
            // The entry is then missing in the digest.
            Err(Errno::NOENT) => return Ok(None),
            stat => {
                stat.map_err(|errno| self.error("cannot look at", &at.node.path_to(name), errno))?
            }
        };
        let kind = kind_of(&stat);
        at.node.data.add(&self.digest(name, &stat));
        let number = (stat.stx_rdev_major, stat.stx_rdev_minor);
        let is_whiteout = kind == FileType::CharacterDevice && number == (0, 0);
        own.sum.overlay_data += u64::from(is_whiteout);
        if stat.stx_nlink > 1 && kind != FileType::Directory {
            let inode = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
            own.sum.linked.insert(inode, stat.stx_blocks);
        } else {
            own.sum.blocks += stat.stx_blocks;
        }
        Ok(Some(kind))
    }
}

impl<'a> Visitor for Fingerprinting<'a> {
    type Data = Sheet;
    type Own = FingerprintThread<'a>;

    fn own(&self) -> FingerprintThread<'a> {
        FingerprintThread {
            tally: Tally::new(self.progress, "cannot fingerprint"),
            sum: Sum::default(),
        }
    }

    fn enter(
        &self,
        at: &HashedDirectory<'_, 'a>,
        own: &mut FingerprintThread<'a>,
        name: &CStr,
    ) -> Entered<Sheet> {
        if self.look(at, own, name)? != Some(FileType::Directory) {
            return Ok(None);
        }
        match Mounts::Stop.directory(at.pair.first(), name) {
            Ok(first) => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                Ok(Some((DirFds { first, second: None }, Sheet::new(number))))
            }
            Err(Errno::XDEV | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(self.error("cannot open", &at.node.path_to(name), errno)),
        }
    }

    fn entry(
        &self,
        at: &HashedDirectory<'_, 'a>,
        own: &mut FingerprintThread<'a>,
        name: &CStr,
        kind: FileType,
    ) -> Result<bool, Error> {
        if kind == FileType::Unknown {
            let stat = look(at.pair.first(), name);
            if stat.is_ok_and(|stat| kind_of(&stat) == FileType::Directory) {
                return Ok(true);
            }
        }
        self.look(at, own, name)?;
        own.tally.entry()?;
        Ok(false)
    }

    fn leave(
        &self,
        at: &HashedDirectory<'_, 'a>,
        own: &mut FingerprintThread<'a>,
        _: Option<&DirFds>,
    ) -> Result<Left, Error> {
        own.tally.entry()?;
        let has_overlay_data = has_overlay_attributes(&Open(at.pair.first())).map_err(|errno| {
            self.error("cannot read the extended attributes of", &at.node.path(), errno)
        })?;
        own.sum.overlay_data += u64::from(has_overlay_data);
        let sheet = &at.node.data;
        let parent = at.node.parent().map_or(0, |parent| parent.data.number);
        let name = at.node.name().to_bytes().to_vec();
        own.sum
            .directories
            .push((sheet.number, Fingerprinted { parent, name, digest: sheet.sum() }));
        Ok(Left::Done)
    }

    fn error(&self, act: &'static str, path: &[u8], errno: Errno) -> Error {
        Error::new(act, &shown(&path_of_root(self.tree), path), errno)
    }

    fn finish(&self, mut own: FingerprintThread<'a>) {
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.entries += own.tally.total().0;
        sum.blocks += own.sum.blocks;
        sum.overlay_data += own.sum.overlay_data;
        sum.linked.extend(own.sum.linked);
        sum.directories.append(&mut own.sum.directories);
    }
}
