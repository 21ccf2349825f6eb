//! Helpers: open directories, copy, remove, list.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use synconce_fs::{CopyMode, CopyOptions, CopyReport, Error, Progress, Removed, copy, remove};
use synconce_testkit::isolation::isolated;
use synconce_testkit::manifest::{Manifest, ManifestOptions, diff};
use synconce_testkit::rig::{FsKind, Rig};

pub const FILE_SYSTEMS: [FsKind; 3] = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];

/// May be more threads than this machine has cores, so that threads compete.
pub const THREADS: usize = 4;

pub fn rig(fs: FsKind) -> Rig {
    Rig::builder().fs(fs).size(1 << 30).up().unwrap()
}

/// Runs `test`, in a process of its own, with a rig of each file system.
pub fn on_each_file_system(test: impl Fn(FsKind, Rig)) {
    isolated(test, |_, test| {
        for fs in FILE_SYSTEMS {
            test(fs, rig(fs));
        }
    });
}

pub fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

pub fn options(mode: CopyMode) -> CopyOptions {
    CopyOptions { mode, threads: THREADS, ..CopyOptions::default() }
}

/// Copies into a new directory.
pub fn try_copy(
    source: &Path,
    target: &Path,
    options: &CopyOptions,
    progress: &dyn Progress,
) -> Result<CopyReport, Error> {
    fs::create_dir(target).unwrap();
    copy(open(source).as_fd(), open(target).as_fd(), options, progress)
}

pub fn copied(source: &Path, target: &Path, mode: CopyMode) -> CopyReport {
    try_copy(source, target, &options(mode), &()).unwrap()
}

pub fn removed(path: &Path) -> Removed {
    let (parent, name) = (open(path.parent().unwrap()), path.file_name().unwrap());
    remove(parent.as_fd(), name, THREADS, &()).unwrap()
}

/// Removes a tree, of which nothing may stay.
pub fn remove_all(path: &Path) -> u64 {
    let removed = removed(path);
    assert!(removed.is_complete(), "{:?}", removed.left);
    assert!(fs::symlink_metadata(path).is_err(), "{} is still there", path.display());
    removed.entries
}

pub fn assert_same(one: &Path, other: &Path) {
    let of = |path| Manifest::with(path, &ManifestOptions::default().mtimes()).unwrap();
    let (one, other) = (of(one), of(other));
    let differences: Vec<_> = diff(&one, &other).iter().map(ToString::to_string).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    let unreadable: Vec<_> =
        one.entries.iter().filter(|(_, entry)| entry.unreadable.is_some()).collect();
    assert!(unreadable.is_empty(), "nothing is known of {unreadable:?}");
}

/// Mounts a tmpfs at a directory, in a mount namespace of the test's own.
pub fn in_memory(path: &Path) -> PathBuf {
    use rustix::mount::{MountFlags, mount};
    fs::create_dir_all(path).unwrap();
    mount("memory", path, "tmpfs", MountFlags::empty(), None).unwrap();
    path.to_owned()
}

pub fn paths(paths: &[PathBuf]) -> Vec<&str> {
    paths.iter().map(|path| path.to_str().unwrap()).collect()
}

/// Counts, and calls a function at the first report.
pub struct Counting<F> {
    pub entries: AtomicU64,
    pub bytes: AtomicU64,
    pub cancels: bool,
    pub then: F,
}

impl<F: Fn() + Sync> Counting<F> {
    pub fn new(cancels: bool, then: F) -> Self {
        Self { entries: AtomicU64::new(0), bytes: AtomicU64::new(0), cancels, then }
    }

    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::SeqCst)
    }
}

impl<F: Fn() + Sync> Progress for Counting<F> {
    fn add(&self, entries: u64, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        if self.entries.fetch_add(entries, Ordering::SeqCst) == 0 {
            (self.then)();
        }
    }

    fn cancelled(&self) -> bool {
        self.cancels
    }
}
