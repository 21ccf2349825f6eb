//! Syncs file systems that the run unmounts, before the unmount. The sync runs outside the
//! lock of the run, because a device may be slow and must not delay other calls.

use super::markers::Markers;
use super::turn::Checkpoints;
use super::work::PATIENCE;
use crate::report::protocol::Committed;
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use synconce_durable::commit::commit;
use synconce_durable::pins::{Pin, Pins};
use synconce_probe::mounts::DeviceId;
use synconce_sys::reason;

/// An unmount, from the call until the file system is durable or was given up.
pub(super) struct UnmountSync {
    pub(super) mount: u64,
    pub(super) device: DeviceId,
    pub(super) point: PathBuf,
    type_name: String,
    source: String,
    sync: Mutex<Sync>,
    over: Condvar,
}

enum Sync {
    GoesOn {
        /// Whether a sync is to cover what was written since the last one began.
        again: bool,
    },
    /// The outcome goes into the reports of commits.
    Over { outcome: Option<Committed>, end: End },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Durable,
    /// A sync failed, or there was none after a failure. It is not tried again.
    Lost,
    /// There was no sync. The kernel writes the file system out at its end, which a failed unmount,
    /// a lazy one or another mount delays: the commit looks whether the file system is in use.
    Unopened,
}

impl UnmountSync {
    pub(super) fn from_pin(pin: &Pin) -> Self {
        Self {
            mount: pin.mount,
            device: pin.device,
            point: pin.point.clone(),
            type_name: pin.type_name.clone(),
            source: pin.source.clone(),
            sync: Mutex::new(Sync::GoesOn { again: true }),
            over: Condvar::new(),
        }
    }

    /// Syncs the file system of `pin`, and again for each checkpoint that begins meanwhile: the
    /// unmount may fail, and what was written during a sync would be left out. On success
    /// removes the marker on it; otherwise the marker stays, and its descriptor is closed.
    ///
    /// Waits for a checkpoint in progress first: it has the file system open, and may fail. A
    /// file system that failed in a checkpoint is not synced again.
    pub(super) fn sync(
        &self,
        pin: Pin,
        checkpoints: &Checkpoints,
        markers: &Markers,
        patience: Duration,
    ) {
        checkpoints.is_idle_within(PATIENCE);
        let mut marker = markers.take_on(pin.mount);
        let (mut outcome, mut durable) = (None, !checkpoints.has_lost(pin.device));
        loop {
            if durable && self.begins() {
                let report = commit(Pins::from(pin.clone()), None, patience, &mut |_| {});
                outcome = report.file_systems.into_iter().next().map(Committed::from);
                durable = outcome.as_ref().is_some_and(|outcome| outcome.error.is_none());
            }
            if let Some(marker) = marker.take().filter(|_| durable) {
                // A marker that stays causes a false warning, not a missing one.
                let _ = marker.clear();
            }
            let mut sync = self.lock();
            if !durable || !matches!(*sync, Sync::GoesOn { again: true }) {
                // Before the end is seen: an open descriptor makes an unmount fail.
                drop(pin);
                let end = if durable { End::Durable } else { End::Lost };
                *sync = Sync::Over { outcome, end };
                break;
            }
        }
        self.over.notify_all();
    }

    /// Ends the sync of a file system that was not opened: no path leads there, or `error` kept it
    /// from being opened.
    pub(super) fn end_unopened(&self, error: Option<Errno>) {
        let outcome = error.map(|error| Committed {
            mount_point: self.point.clone(),
            type_name: self.type_name.clone(),
            source: self.source.clone(),
            micros: None,
            error: Some(reason(&error.into())),
        });
        let end = if outcome.is_some() { End::Lost } else { End::Unopened };
        *self.lock() = Sync::Over { outcome, end };
        self.over.notify_all();
    }

    /// Whether a sync has to begin now.
    fn begins(&self) -> bool {
        match &mut *self.lock() {
            Sync::GoesOn { again } => std::mem::take(again),
            Sync::Over { .. } => false,
        }
    }

    /// Whether a checkpoint leaves the file system to this sync. A sync that still runs is
    /// repeated, so it covers what was written until now; a failed sync is not tried again.
    pub(super) fn takes_over(&self) -> bool {
        match &mut *self.lock() {
            Sync::GoesOn { again } => {
                *again = true;
                true
            }
            Sync::Over { end, .. } => *end == End::Lost,
        }
    }

    /// Whether the sync is over; waits at most `limit`.
    pub(super) fn is_over_within(&self, limit: Duration) -> bool {
        let goes_on = |sync: &mut Sync| matches!(sync, Sync::GoesOn { .. });
        let waited = self.over.wait_timeout_while(self.lock(), limit, goes_on);
        !goes_on(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Waits until the sync is over.
    pub(super) fn wait(&self) {
        while !self.is_over_within(Duration::MAX) {}
    }

    /// Whether the sync is over and succeeded.
    pub(super) fn is_durable(&self) -> bool {
        matches!(*self.lock(), Sync::Over { end: End::Durable, .. })
    }

    /// Whether the sync goes on, or failed.
    pub(super) fn may_be_lost(&self) -> bool {
        !matches!(*self.lock(), Sync::Over { end: End::Durable | End::Unopened, .. })
    }

    /// Returns the outcome of a sync that is over, unless a checkpoint has reported it.
    pub(super) fn outcome(&self) -> Option<Committed> {
        match &*self.lock() {
            Sync::Over { outcome, .. } => outcome.clone(),
            Sync::GoesOn { .. } => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sync> {
        self.sync.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
