//! The commit: one durable sync of every pinned file system.
//!
//! Each file system is synced by a thread of its own, so that one that hangs
//! does not keep the others from becoming durable. A failed sync is final: a
//! second one would succeed, and the cache would show data that the disk does
//! not have.

use crate::pins::{Pin, Pins};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use synconce_probe::device;
use synconce_probe::filesystem::Kind;
use synconce_probe::mounts::DeviceId;

/// How one file system fared.
#[derive(Debug)]
pub struct Outcome {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its type.
    pub type_name: String,
    /// What is mounted.
    pub source: String,
    /// Time its sync took, or why it did not come about.
    pub result: Result<Duration, Failure>,
}

/// Why a file system is not durable.
#[derive(Debug)]
pub enum Failure {
    /// The kernel reported a write-back error, during the run or now.
    Sync(io::Error),
    /// No request of its device was completed for this long.
    Hung(Duration),
    /// A volatile overlay whose upper file system cannot be reached.
    Volatile,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sync(error) => write!(f, "{error}"),
            Self::Hung(time) => write!(f, "no answer for {} s", time.as_secs()),
            Self::Volatile => write!(f, "a volatile overlay never becomes durable"),
        }
    }
}

/// How far a commit is, told about four times a second.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Time since it began.
    pub elapsed: Duration,
    /// Where file systems that are not durable yet are mounted.
    pub waiting: Vec<&'a std::path::Path>,
    /// Dirty bytes of the whole host.
    pub dirty: u64,
}

const TICK: Duration = Duration::from_millis(250);

struct Waiting {
    device: DeviceId,
    outcome: Outcome,
    movement: u64,
    moved: Instant,
}

/// Syncs every file system of `pins` and says how each fared. One whose device
/// completes nothing for `patience` is given up as hung; its thread stays behind.
pub fn commit(
    pins: Pins,
    patience: Duration,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Vec<Outcome> {
    let began = Instant::now();
    let (sender, receiver) = mpsc::channel();
    let mut done = Vec::new();
    let mut waiting: Vec<Option<Waiting>> = Vec::new();
    for (index, pin) in pins.into_vec().into_iter().enumerate() {
        waiting.push(Some(Waiting::of(&pin, began)));
        start(pin, index, sender.clone());
    }
    drop(sender);
    while waiting.iter().any(Option::is_some) {
        match receiver.recv_timeout(TICK) {
            Ok((index, result)) => done.extend(waiting[index].take().map(|w| w.finish(result))),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                done.extend(waiting.iter_mut().filter_map(|slot| give_up(slot, patience)));
                let left = waiting.iter().flatten().map(|w| w.outcome.point.as_path());
                progress(&Progress {
                    elapsed: began.elapsed(),
                    waiting: left.collect(),
                    dirty: device::dirty_bytes(),
                });
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    // A thread that ended without a word is a sync that did not come about.
    done.extend(waiting.into_iter().flatten().map(|left| {
        left.finish(Err(Failure::Sync(io::Error::other("the sync ended without a result"))))
    }));
    done
}

impl Outcome {
    fn of(pin: &Pin, result: Result<Duration, Failure>) -> Self {
        Self {
            point: pin.point.clone(),
            type_name: pin.type_name.clone(),
            source: pin.source.clone(),
            result,
        }
    }
}

impl Waiting {
    fn of(pin: &Pin, now: Instant) -> Self {
        let outcome = Outcome::of(pin, Ok(Duration::ZERO));
        Self { device: pin.device, outcome, movement: 0, moved: now }
    }

    fn finish(self, result: Result<Duration, Failure>) -> Outcome {
        Outcome { result, ..self.outcome }
    }
}

/// Takes a file system whose device has stood still for `patience`.
fn give_up(slot: &mut Option<Waiting>, patience: Duration) -> Option<Outcome> {
    let waiting = slot.as_mut()?;
    let movement = device::movement(waiting.device, &waiting.outcome.source);
    if movement != waiting.movement {
        waiting.movement = movement;
        waiting.moved = Instant::now();
    }
    let still = waiting.moved.elapsed();
    if still < patience {
        return None;
    }
    slot.take().map(|waiting| waiting.finish(Err(Failure::Hung(still))))
}

fn start(pin: Pin, index: usize, sender: mpsc::Sender<(usize, Result<Duration, Failure>)>) {
    let run = move |pin: Arc<Pin>| {
        let result = sync(&pin);
        // Whoever hears of it may unmount the file system.
        drop(pin);
        // The receiver is gone when this file system was given up.
        let _ = sender.send((index, result));
    };
    let pin = Arc::new(pin);
    let (work, shared) = (run.clone(), Arc::clone(&pin));
    let thread = std::thread::Builder::new().name("commit".into()).stack_size(64 * 1024);
    let started = thread.spawn(move || work(shared));
    match started {
        Ok(_) => drop(pin),
        // At the limit of processes: without patience, but done.
        Err(_) => run(pin),
    }
}

/// Syncs one file system. The first error is final.
fn sync(pin: &Pin) -> Result<Duration, Failure> {
    let began = Instant::now();
    rustix::fs::syncfs(&pin.handle).map_err(|error| Failure::Sync(error.into()))?;
    if pin.kind() == (Kind::Disk { flushes: false }) {
        rustix::fs::fsync(&pin.handle).map_err(|error| Failure::Sync(error.into()))?;
    }
    if pin.volatile {
        return Err(Failure::Volatile);
    }
    Ok(began.elapsed())
}
