//! A file system that the run unmounts: synced before, off the books, because a
//! device may take its time and nobody else's call shall wait for it.

use super::work::Markers;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use synconce_durable::commit::{Outcome, commit};
use synconce_durable::pins::{Pin, Pins};
use synconce_probe::mounts::DeviceId;

/// An unmount, from the call until the file system is durable or given up.
pub(super) struct Leaving {
    pub(super) mount: u64,
    pub(super) device: DeviceId,
    pub(super) point: PathBuf,
    sync: Mutex<Sync>,
    over: Condvar,
}

enum Sync {
    GoesOn,
    /// As the commit's report has it.
    Over {
        outcome: Option<Outcome>,
        durable: bool,
    },
}

impl Leaving {
    pub(super) fn of(pin: &Pin) -> Self {
        Self {
            mount: pin.mount,
            device: pin.device,
            point: pin.point.clone(),
            sync: Mutex::new(Sync::GoesOn),
            over: Condvar::new(),
        }
    }

    /// Syncs the file system of `pin`, and removes the one of `markers` that is on it, if
    /// that went well; otherwise that marker stays, and lets go of the disk.
    pub(super) fn depart(&self, pin: Pin, markers: &Markers, patience: Duration) {
        let marker = markers.take_on(pin.mount);
        let outcome = commit(Pins::from(pin), None, patience, &mut |_| {}).file_systems.pop();
        let durable = outcome.as_ref().is_some_and(|outcome| outcome.result.is_ok());
        if let Some(marker) = marker.filter(|_| durable) {
            // A marker that stays says too much, not too little.
            let _ = marker.clear();
        }
        *self.sync() = Sync::Over { outcome, durable };
        self.over.notify_all();
    }

    /// Whether it is over, within `limit`.
    pub(super) fn is_over_within(&self, limit: Duration) -> bool {
        let goes_on = |sync: &mut Sync| matches!(sync, Sync::GoesOn);
        let waited = self.over.wait_timeout_while(self.sync(), limit, goes_on);
        !goes_on(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Waits until it is over.
    pub(super) fn wait(&self) {
        while !self.is_over_within(Duration::MAX) {}
    }

    /// Whether it is over, and went well.
    pub(super) fn is_durable(&self) -> bool {
        matches!(*self.sync(), Sync::Over { durable: true, .. })
    }

    /// How it went; once.
    pub(super) fn take_outcome(&self) -> Option<Outcome> {
        match &mut *self.sync() {
            Sync::Over { outcome, .. } => outcome.take(),
            Sync::GoesOn => None,
        }
    }

    fn sync(&self) -> MutexGuard<'_, Sync> {
        self.sync.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
