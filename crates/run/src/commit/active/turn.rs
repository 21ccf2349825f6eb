//! The checkpoints of a run: one is made at a time, and what failed in each is kept.

use crate::report::protocol::{Committed, CommittedEverything};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use synconce_durable::mutant;
use synconce_probe::mounts::DeviceId;

/// What failed in the checkpoints of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    lost: Vec<(DeviceId, Committed)>,
    pub(super) everything: Option<CommittedEverything>,
}

impl Failures {
    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.everything.is_none()
    }

    pub(super) fn file_systems(&self) -> impl Iterator<Item = Committed> {
        self.lost.iter().map(|(_, committed)| committed.clone())
    }
}

#[derive(Debug, Default)]
struct TurnState {
    is_busy: bool,
    failures: Failures,
}

/// The checkpoints of one run: whose turn it is to make one, and which syncs failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoints(Arc<(Mutex<TurnState>, Condvar)>);

/// The right to make a checkpoint, until the value is dropped.
pub(crate) struct Turn(Checkpoints);

impl Checkpoints {
    fn lock(&self) -> MutexGuard<'_, TurnState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn to make a checkpoint. Do not call it under the lock of the run.
    pub(crate) fn turn(&self) -> Turn {
        let waited = self.0.1.wait_while(self.lock(), |state| state.is_busy);
        waited.unwrap_or_else(PoisonError::into_inner).is_busy = true;
        Turn(self.clone())
    }

    /// Whether no checkpoint is in progress; waits at most `limit` for that.
    pub(super) fn is_idle_within(&self, limit: Duration) -> bool {
        let waited = self.0.1.wait_timeout_while(self.lock(), limit, |state| state.is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_busy
    }

    pub(super) fn failures(&self) -> Failures {
        self.lock().failures.clone()
    }

    /// Whether the sync of `device` failed in a checkpoint.
    pub(super) fn has_lost(&self, device: DeviceId) -> bool {
        self.lock().failures.lost.iter().any(|(lost, _)| *lost == device)
    }

    /// Keeps what failed in a checkpoint.
    pub(super) fn note(
        &self,
        lost: Vec<(DeviceId, Committed)>,
        everything: Option<&CommittedEverything>,
    ) {
        if mutant::is("checkpoint-error-forgotten") {
            return;
        }
        let failures = &mut self.lock().failures;
        failures.lost.extend(lost);
        if let Some(failed) = everything.filter(|everything| everything.error.is_some()) {
            failures.everything.get_or_insert_with(|| failed.clone());
        }
    }
}

impl Turn {
    pub(super) fn checkpoints(&self) -> Checkpoints {
        self.0.clone()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().is_busy = false;
        self.0.0.1.notify_all();
    }
}
