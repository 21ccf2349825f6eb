//! Flushes: each takes its set time, one after the other as on a disk, and fails or waits on
//! demand.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::rig::latency::{Draws, Latency};

/// The reply of a waiting flush.
pub(super) trait FlushReply {
    /// Answers the flush; returns false if the answer is an error.
    fn answer(self) -> bool;
}

/// The flushes of a disk: the waiting ones, and the counts of the others.
pub(super) struct Flushes<A> {
    queue: Mutex<Queue<A>>,
    changed: Condvar,
}

struct Queue<A> {
    waiting: VecDeque<(Instant, A)>,
    /// A flush has left `waiting`, and its time is running.
    busy: bool,
    free: bool,
    times: Draws,
    stalled: bool,
    counts: FlushCounts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FlushCounts {
    pub(super) arrived: u64,
    pub(super) failed: u64,
    /// Nanoseconds from arrival to answer, summed.
    pub(super) nanos: u64,
    /// Nanoseconds that the flushes should have taken individually, summed.
    pub(super) planned: u64,
}

impl<A> Default for Flushes<A> {
    fn default() -> Self {
        let queue = Queue {
            waiting: VecDeque::new(),
            busy: false,
            free: true,
            times: Latency::NONE.draws(),
            stalled: false,
            counts: FlushCounts::default(),
        };
        Self { queue: Mutex::new(queue), changed: Condvar::new() }
    }
}

impl<A: FlushReply> Flushes<A> {
    /// Accepts a flush. A flush that costs nothing is answered at once, without a switch of
    /// threads.
    pub(super) fn arrive(&self, answer: A) {
        let mut queue = self.queue();
        queue.counts.arrived += 1;
        if queue.free && !queue.stalled && !queue.busy && queue.waiting.is_empty() {
            queue.finish(Instant::now(), Duration::ZERO, answer);
        } else {
            queue.waiting.push_back((Instant::now(), answer));
            self.changed.notify_all();
        }
    }

    /// Answers the flushes, for ever.
    pub(super) fn answer(&self) {
        loop {
            self.answer_one();
        }
    }

    fn answer_one(&self) {
        let idle = |queue: &mut Queue<A>| queue.stalled || queue.waiting.is_empty();
        let mut queue =
            self.changed.wait_while(self.queue(), idle).unwrap_or_else(PoisonError::into_inner);
        let Some((arrived, answer)) = queue.waiting.pop_front() else {
            return;
        };
        queue.busy = true;
        // The disk was idle until now, or worked on the flush before: the time starts here,
        // not at the arrival. The transfer of the request to this process (some 50 us) comes
        // on top.
        let takes = queue.times.next().unwrap_or_default();
        drop(queue);
        sleep(takes);
        let mut queue = self.queue();
        queue.busy = false;
        if queue.stalled {
            queue.waiting.push_front((arrived, answer));
        } else {
            queue.finish(arrived, takes, answer);
        }
    }

    pub(super) fn set_latency(&self, latency: Latency) {
        let mut queue = self.queue();
        (queue.free, queue.times) = (latency == Latency::NONE, latency.draws());
    }

    pub(super) fn stall(&self, stalled: bool) {
        self.queue().stalled = stalled;
        self.changed.notify_all();
    }

    /// Returns the counts, and how many flushes wait for their answer.
    pub(super) fn counts(&self) -> (FlushCounts, u64) {
        let queue = self.queue();
        (queue.counts, queue.waiting.len() as u64 + u64::from(queue.busy))
    }

    fn queue(&self) -> MutexGuard<'_, Queue<A>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: FlushReply> Queue<A> {
    fn finish(&mut self, arrived: Instant, takes: Duration, answer: A) {
        self.counts.nanos += nanos(arrived.elapsed());
        self.counts.planned += nanos(takes);
        self.counts.failed += u64::from(!answer.answer());
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    impl FlushReply for Sender<bool> {
        fn answer(self) -> bool {
            self.send(true).is_ok()
        }
    }

    #[test]
    fn a_flush_that_costs_nothing_is_answered_on_arrival() {
        let (flushes, (answer, answered)) = (Flushes::default(), channel());
        flushes.arrive(answer);
        assert_eq!(answered.try_recv(), Ok(true));
        assert_eq!(flushes.counts().1, 0);
    }

    #[test]
    fn a_stalled_flush_waits_for_its_release() {
        let (flushes, (answer, answered)) = (Flushes::default(), channel());
        flushes.stall(true);
        flushes.arrive(answer);
        assert!(answered.try_recv().is_err());
        assert_eq!(flushes.counts().1, 1);
        flushes.stall(false);
        flushes.answer_one();
        assert_eq!(answered.try_recv(), Ok(true));
        assert_eq!(flushes.counts(), (FlushCounts { arrived: 1, ..flushes.counts().0 }, 0));
    }

    #[test]
    fn a_failed_flush_is_counted() {
        let (flushes, (answer, gone)) = (Flushes::default(), channel());
        drop(gone);
        flushes.arrive(answer);
        assert_eq!(flushes.counts().0.failed, 1);
    }

    #[test]
    fn flushes_are_planned_by_the_distribution_of_their_latency() {
        let (flushes, (answer, _answered)) = (Flushes::default(), channel());
        let (low, high) = (Duration::from_micros(10), Duration::from_micros(90));
        let latency = Latency::uniform(low, high, 7);
        flushes.set_latency(latency);
        for _ in 0..5 {
            flushes.arrive(answer.clone());
            flushes.answer_one();
        }
        let planned: Duration = latency.draws().take(5).sum();
        assert_eq!(flushes.counts().0.planned, nanos(planned));
    }

    #[test]
    fn flushes_take_their_time_one_after_the_other() {
        let (flushes, (answer, answered)) = (Flushes::default(), channel());
        flushes.set_latency(Latency::of_flush(Duration::from_millis(5)));
        let start = Instant::now();
        flushes.arrive(answer.clone());
        flushes.arrive(answer);
        flushes.answer_one();
        flushes.answer_one();
        assert!(start.elapsed() >= Duration::from_millis(10));
        assert_eq!(answered.iter().count(), 2);
        assert!(flushes.counts().0.nanos >= 15_000_000);
    }
}
