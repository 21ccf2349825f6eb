//! Syncs file systems that the run unmounts, before the unmount. The sync runs outside the
//! lock of the run, because a device may be slow and must not delay other calls.

use super::work::Markers;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use synconce_durable::commit::{Outcome, commit};
use synconce_durable::pins::{Pin, Pins};
use synconce_probe::mounts::DeviceId;

/// An unmount, from the call until the file system is durable or was given up.
pub(super) struct UnmountSync {
    pub(super) mount: u64,
    pub(super) device: DeviceId,
    pub(super) point: PathBuf,
    sync: Mutex<Sync>,
    over: Condvar,
}

enum Sync {
    GoesOn,
    /// The outcome goes into the commit's report.
    Over {
        outcome: Option<Outcome>,
        durable: bool,
    },
}

impl UnmountSync {
    pub(super) fn of(pin: &Pin) -> Self {
        Self {
            mount: pin.mount,
            device: pin.device,
            point: pin.point.clone(),
            sync: Mutex::new(Sync::GoesOn),
            over: Condvar::new(),
        }
    }

    /// Syncs the file system of `pin`. On success removes the marker on it; otherwise the
    /// marker stays, and its descriptor is closed.
    pub(super) fn sync(&self, pin: Pin, markers: &Markers, patience: Duration) {
        let marker = markers.take_on(pin.mount);
        let outcome = commit(Pins::from(pin), None, patience, &mut |_| {}).file_systems.pop();
        let durable = outcome.as_ref().is_some_and(|outcome| outcome.result.is_ok());
        if let Some(marker) = marker.filter(|_| durable) {
            // A marker that stays causes a false warning, not a missing one.
            let _ = marker.clear();
        }
        *self.lock() = Sync::Over { outcome, durable };
        self.over.notify_all();
    }

    /// Whether the sync is over; waits at most `limit`.
    pub(super) fn is_over_within(&self, limit: Duration) -> bool {
        let goes_on = |sync: &mut Sync| matches!(sync, Sync::GoesOn);
        let waited = self.over.wait_timeout_while(self.lock(), limit, goes_on);
        !goes_on(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Waits until the sync is over.
    pub(super) fn wait(&self) {
        while !self.is_over_within(Duration::MAX) {}
    }

    /// Whether the sync is over and succeeded.
    pub(super) fn is_durable(&self) -> bool {
        matches!(*self.lock(), Sync::Over { durable: true, .. })
    }

    /// Returns, once, the outcome of the sync.
    pub(super) fn take_outcome(&self) -> Option<Outcome> {
        match &mut *self.lock() {
            Sync::Over { outcome, .. } => outcome.take(),
            Sync::GoesOn => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sync> {
        self.sync.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
