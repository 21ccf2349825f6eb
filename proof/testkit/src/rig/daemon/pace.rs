//! Limits the disk's speed: one request at a time, each for as long as the limits demand.

use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::rig::Limits;
use crate::rig::limits::Transfer;

#[derive(Default)]
pub(super) struct Pace {
    state: Mutex<PaceState>,
}

#[derive(Default)]
struct PaceState {
    limits: Limits,
    /// When the disk will have finished all its requests.
    free: Option<Instant>,
    /// The end offset of the last request.
    end: u64,
    planned: Duration,
}

impl Pace {
    pub(super) fn set(&self, limits: Limits) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.limits, state.free) = (limits, None);
    }

    /// Returns when the disk would have finished this request.
    pub(super) fn take(&self, transfer: Transfer, offset: u64, bytes: u64) {
        let wait = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.plan(transfer, offset, bytes, Instant::now())
        };
        if !wait.is_zero() {
            sleep(wait);
        }
    }

    /// Returns the time that all requests should have taken.
    pub(super) fn planned(&self) -> Duration {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).planned
    }
}

impl PaceState {
    fn plan(&mut self, transfer: Transfer, offset: u64, bytes: u64, now: Instant) -> Duration {
        let takes = self.limits.time(transfer, bytes, offset == self.end);
        self.end = offset + bytes;
        if takes.is_zero() {
            return takes;
        }
        self.planned += takes;
        // The schedule is independent of the sleeps: a late wake-up does not delay the next
        // request.
        let done = self.free.map_or(now, |free| free.max(now)) + takes;
        self.free = Some(done);
        done - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_come_at_once_are_done_one_after_the_other() {
        let limits = Limits { writes: Some(100), ..Limits::NONE };
        let mut state = PaceState { limits, ..PaceState::default() };
        let (now, tenth) = (Instant::now(), Duration::from_millis(10));
        assert_eq!(state.plan(Transfer::Write, 0, 4096, now), tenth);
        assert_eq!(state.plan(Transfer::Write, 0, 4096, now), tenth * 2);
        assert_eq!(state.plan(Transfer::Read, 0, 4096, now), Duration::ZERO);
        let later = now + Duration::from_secs(1);
        assert_eq!(state.plan(Transfer::Write, 0, 4096, later), tenth);
        assert_eq!(state.planned, tenth * 3);
    }
}
