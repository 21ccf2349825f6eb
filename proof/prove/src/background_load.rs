//! Processes outside the run that work on the same file system. One syncs, which commits the
//! file system's journal; one starts the write-back of the run's own data. Each reorders
//! writes in its own way, and some mutants are only caught with one of the two.

use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use synconce_sys::btrfs;

/// Which background load runs. One load is not enough: a file system that another process
/// keeps syncing hides what a run leaves unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadKind {
    syncs: bool,
    writes_back: bool,
}

impl LoadKind {
    /// Returns the load of recorded run number `round`. Four rounds use all four loads.
    pub(crate) fn for_round(round: u64) -> Self {
        Self { syncs: round % 4 >= 2, writes_back: round % 2 == 1 }
    }

    /// Returns a load without the syncing thread: no load and a load that starts write-back
    /// alternate.
    pub(crate) fn writing_back(round: u64) -> Self {
        Self { syncs: false, writes_back: round % 2 == 1 }
    }
}

/// The threads of the background load. Dropping the value stops them.
pub(crate) struct BackgroundLoad {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

const PAUSE: Duration = Duration::from_millis(3);

impl BackgroundLoad {
    /// Starts the threads: one syncs its own files in `own`, one starts the write-back of the
    /// files below each of `others`. If `own` is a subvolume of btrfs, each sync also commits
    /// btrfs's transaction: there fsync(2) alone writes a log, and the changes of other processes
    /// stay in memory.
    pub(crate) fn start(load: LoadKind, own: &Path, others: &[PathBuf]) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        if load.syncs {
            let (over, own) = (Arc::clone(&over), own.to_owned());
            threads.push(thread::spawn(move || repeat(&over, |round| sync_one(&own, round))));
        }
        if load.writes_back {
            let (over, others) = (Arc::clone(&over), others.to_vec());
            let write_back_each = move || others.iter().for_each(|path| start_write_back(path));
            threads.push(thread::spawn(move || repeat(&over, |_| write_back_each())));
        }
        Self { over, threads }
    }
}

impl Drop for BackgroundLoad {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            // A failed background load disturbs less; the cuts are checked all the same.
            let _ = thread.join();
        }
    }
}

fn repeat(over: &AtomicBool, mut act: impl FnMut(u64)) {
    let mut round = 0;
    while !over.load(SeqCst) {
        act(round);
        round += 1;
        thread::sleep(PAUSE);
    }
}

fn sync_one(own: &Path, round: u64) {
    let path = own.join((round % 7).to_string());
    let written = File::create(path).and_then(|mut file| {
        file.write_all(&round.to_ne_bytes())?;
        file.sync_all()
    });
    // The disk may be full or gone. The recorded run reports such an error itself.
    drop(written);
    if let Ok(own) = File::open(own)
        && btrfs::is_subvolume(own.as_fd()).unwrap_or_default()
    {
        // Each change of the property is a commit.
        let changed = btrfs::make_read_only(own.as_fd());
        drop(changed.and_then(|()| btrfs::make_writable(own.as_fd())));
    }
}

/// Starts the write-back of every file below `path` (`POSIX_FADV_DONTNEED`, posix_fadvise(2)).
fn start_write_back(path: &Path) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            start_write_back(&entry.path());
        } else if let Some(file) = kind.is_file().then(|| File::open(entry.path()).ok()).flatten() {
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }
}
