//! The commit: one durable sync of every pinned file system and, if calls were held that no pin
//! covers, of [`Everything`].
//!
//! Each file system is synced by its own thread, so that a file system that hangs does not
//! keep the others from becoming durable. A failed sync is final: a second sync would succeed,
//! and the cache would show data that the disk does not have.

use crate::everything::Everything;
use crate::failures;
use crate::pins::{Pin, Pins};
use crate::synced::{SyncFailure, Synced};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use synconce_probe::device::{self, Disks};
use synconce_probe::mounts::DeviceId;

/// The result of a commit.
#[derive(Debug)]
pub struct SyncReport {
    /// The pinned file systems.
    pub file_systems: Vec<FileSystemOutcome>,
    /// The sync of everything else, if requested.
    pub everything: Option<Synced>,
}

/// The result of one file system.
#[derive(Debug)]
pub struct FileSystemOutcome {
    /// The mount point.
    pub point: PathBuf,
    /// The type of the file system, as mountinfo gives it.
    pub type_name: String,
    /// The source of the mount.
    pub source: String,
    /// The result of its sync.
    pub result: Synced,
}

/// The progress of a commit, reported after each 250 ms in which no sync ends.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The syncs in progress: mount points, and the words "all disks" for [`Everything`].
    pub waiting: Vec<&'a Path>,
    /// The file systems among them whose devices have made no progress for [`STILL`].
    pub still: Vec<&'a Path>,
    /// Dirty bytes of the whole host.
    pub dirty: u64,
}

/// The time without progress after which a sync counts as standing still.
pub const STILL: Duration = Duration::from_secs(10);

const TICK: Duration = Duration::from_millis(250);

/// The devices that a sync waits for.
enum Devices {
    /// The device of one file system, and the source of its mount.
    One(DeviceId, String),
    /// All disks, because sync(2) waits for all.
    All(Disks),
}

impl Devices {
    /// Returns a number that changes while the sync makes progress.
    fn movement(&mut self) -> u64 {
        match self {
            Self::One(device, source) => device::movement(*device, source),
            Self::All(disks) => disks.movement(),
        }
    }

    /// Returns the disks that make no progress. Empty for one file system, because the report of
    /// its sync names the file system.
    fn hanging(&self) -> Vec<PathBuf> {
        match self {
            Self::One(..) => Vec::new(),
            Self::All(disks) => disks.hanging(),
        }
    }
}

/// A sync to be made by a thread.
struct SyncJob {
    label: PathBuf,
    devices: Devices,
    sync: Box<dyn FnOnce() -> Synced + Send>,
}

/// Syncs every file system of `pins`, and `everything`. Gives up on a sync that makes no progress
/// for `patience`, and leaves its thread running. Counts each failed sync of a file system in
/// [`failures`], for later commits.
pub fn commit(
    pins: Pins,
    everything: Option<Everything>,
    patience: Duration,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> SyncReport {
    let pins = pins.into_vec();
    let describe = |pin: &Pin| (pin.point.clone(), pin.type_name.clone(), pin.source.clone());
    let described: Vec<_> = pins.iter().map(describe).collect();
    let jobs = pins.into_iter().map(SyncJob::of_pin).chain(everything.map(SyncJob::of_everything));
    let mut results = run(jobs.collect(), patience, progress).into_iter();
    let outcome = |((point, type_name, source), result)| FileSystemOutcome {
        point,
        type_name,
        source,
        result,
    };
    let file_systems = described.into_iter().zip(&mut results).map(outcome).collect();
    SyncReport { file_systems, everything: results.next() }
}

impl SyncJob {
    fn of_pin(pin: Pin) -> Self {
        let (device, source) = (pin.device, pin.source.clone());
        Self {
            label: pin.point.clone(),
            devices: Devices::One(device, source),
            sync: Box::new(move || pin.sync()),
        }
    }

    fn of_everything(everything: Everything) -> Self {
        Self {
            label: "all disks".into(),
            devices: Devices::All(Disks::default()),
            sync: Box::new(move || everything.sync()),
        }
    }
}

/// A job that has no result yet.
struct Waiting {
    label: PathBuf,
    devices: Devices,
    /// The last result of [`Devices::movement`], and when it last changed.
    last: (u64, Instant),
}

impl Waiting {
    /// Whether the device of a file system has made no progress for [`STILL`]. Always false for
    /// all disks: the disk that hangs may have no data of the run.
    fn stands_still(&self) -> bool {
        matches!(self.devices, Devices::One(..)) && self.last.1.elapsed() >= STILL
    }

    /// Returns the failure of the job if it has made no progress for `patience`.
    fn hangs(&mut self, patience: Duration) -> Option<SyncFailure> {
        let now = self.devices.movement();
        if now != self.last.0 {
            self.last = (now, Instant::now());
        }
        let still = self.last.1.elapsed();
        (still >= patience).then(|| {
            // The kernel reports an error once, perhaps to this sync, whose result is ignored.
            if let Devices::One(device, _) = self.devices {
                failures::note(device);
            }
            SyncFailure::Hung(still, self.devices.hanging())
        })
    }
}

/// Runs `jobs` in parallel, and returns their results in the order of the jobs.
fn run(
    jobs: Vec<SyncJob>,
    patience: Duration,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Vec<Synced> {
    let began = Instant::now();
    let (sender, receiver) = mpsc::channel();
    let mut results: Vec<Option<Synced>> = jobs.iter().map(|_| None).collect();
    let mut waiting: Vec<Option<Waiting>> = Vec::new();
    for (index, SyncJob { label, devices, sync }) in jobs.into_iter().enumerate() {
        waiting.push(Some(Waiting { label, devices, last: (0, began) }));
        start(index, sync, sender.clone());
    }
    drop(sender);
    while waiting.iter().any(Option::is_some) {
        match receiver.recv_timeout(TICK) {
            Ok((index, result)) => {
                // A result that arrives after its job was given up is ignored.
                if waiting[index].take().is_some() {
                    results[index] = Some(result);
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                for (slot, result) in waiting.iter_mut().zip(&mut results) {
                    if let Some(failure) = slot.as_mut().and_then(|job| job.hangs(patience)) {
                        *slot = None;
                        *result = Some(Err(failure));
                    }
                }
                let left = waiting.iter().flatten().map(|job| job.label.as_path()).collect();
                let still = waiting.iter().flatten().filter(|job| job.stands_still());
                let still = still.map(|job| job.label.as_path()).collect();
                progress(&Progress { waiting: left, still, dirty: device::dirty_bytes() });
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    // A thread that ended without a result has not synced.
    let lost = || Err(SyncFailure::Sync(io::Error::other("the sync ended without a result")));
    results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
}

type Sync = Box<dyn FnOnce() -> Synced + Send>;

/// Runs `sync` on a thread of its own and sends the result.
fn start(index: usize, sync: Sync, sender: mpsc::Sender<(usize, Synced)>) {
    let (hand_over, take_over) = mpsc::channel::<Sync>();
    let reply = sender.clone();
    let work = move || {
        if let Ok(sync) = take_over.recv() {
            // The receiver is closed if the job was given up.
            let _ = reply.send((index, sync()));
        }
    };
    let thread = std::thread::Builder::new().name("commit".into()).stack_size(64 * 1024);
    match thread.spawn(work) {
        // The thread waits for the job, so the send succeeds.
        Ok(_) => drop(hand_over.send(sync)),
        // No thread can be created: this thread syncs, without a time limit.
        Err(_) => drop(sender.send((index, sync()))),
    }
}
