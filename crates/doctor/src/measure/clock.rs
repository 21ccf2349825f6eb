//! When a measurement ends.

use crate::error::Error;
use crate::observer::{Observer, check};
use std::time::{Duration, Instant};

/// A bound of one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub time: Duration,
    pub samples: usize,
}

/// The clock of one measurement.
pub(crate) struct Clock {
    start: Instant,
    bound: Bound,
}

impl Clock {
    pub(crate) fn start(bound: Bound) -> Self {
        Self { start: Instant::now(), bound }
    }

    /// Whether a further sample is within the bound, after `taken` samples.
    ///
    /// # Errors
    /// A signal has arrived.
    pub(crate) fn goes_on(&self, taken: usize, observer: &dyn Observer) -> Result<bool, Error> {
        check(observer)?;
        Ok(taken < self.bound.samples && self.start.elapsed() < self.bound.time)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
