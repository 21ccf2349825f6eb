//! Which threads we trace: each by one of our threads at a time.
//!
//! A call that a signal interrupts is made again, and before Linux 5.19 also when
//! we had received it already. So two of our threads may have a call of the same
//! caller each, an old one and a new; the kernel would refuse the second one.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The threads that are claimed.
#[derive(Debug, Default)]
pub(crate) struct TraceeLocks {
    threads: Mutex<HashMap<u32, Traced>>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traced {
    /// It is made to do a call.
    Led,
    /// It does the call.
    Calls,
}

/// The right to trace a thread; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct TraceeLock<'a> {
    claims: &'a TraceeLocks,
    thread: u32,
}

impl TraceeLocks {
    /// TraceeLocks `thread`, once nobody else does. `None` when it is in a call that is
    /// done with its tracer's knowledge: what it is notified of then, is that call.
    pub(crate) fn wait_for(&self, thread: u32) -> Option<TraceeLock<'_>> {
        let led = |threads: &mut HashMap<_, _>| threads.get(&thread) == Some(&Traced::Led);
        let waited = self.changed.wait_while(self.threads(), led);
        claim(self, &mut waited.unwrap_or_else(PoisonError::into_inner), thread)
    }

    /// TraceeLocks `thread`, if nobody does.
    pub(crate) fn take(&self, thread: u32) -> Option<TraceeLock<'_>> {
        claim(self, &mut self.threads(), thread)
    }

    fn threads(&self) -> MutexGuard<'_, HashMap<u32, Traced>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn claim<'a>(
    claims: &'a TraceeLocks,
    threads: &mut HashMap<u32, Traced>,
    thread: u32,
) -> Option<TraceeLock<'a>> {
    if threads.contains_key(&thread) {
        return None;
    }
    threads.insert(thread, Traced::Led);
    Some(TraceeLock { claims, thread })
}

impl TraceeLock<'_> {
    /// Lets the thread do its call, by `wait`.
    pub(crate) fn call<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.set(Traced::Calls);
        let waited = wait();
        self.set(Traced::Led);
        waited
    }

    fn set(&self, state: Traced) {
        self.claims.threads().insert(self.thread, state);
        self.claims.changed.notify_all();
    }
}

impl Drop for TraceeLock<'_> {
    fn drop(&mut self) {
        self.claims.threads().remove(&self.thread);
        self.claims.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_thread_is_claimed_once_at_a_time() {
        let claims = TraceeLocks::default();
        let claim = claims.take(7).expect("it is free");
        assert!(claims.take(7).is_none());
        assert!(claims.take(8).is_some());
        drop(claim);
        assert!(claims.take(7).is_some());
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(50);

    /// Somebody waits for thread 7, which is claimed; what he gets after `then`.
    fn waits(then: impl FnOnce(TraceeLock<'_>, &dyn Fn(Duration) -> Option<bool>)) {
        let claims = TraceeLocks::default();
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let claim = claims.take(7).expect("it is free");
            scope.spawn(|| sender.send(claims.wait_for(7).is_some()));
            let received = |limit| receiver.recv_timeout(limit).ok();
            assert_eq!(received(SHORT), None, "it does not wait");
            then(claim, &received);
        });
    }

    #[test]
    fn who_waits_for_a_claim_gets_it_when_it_ends() {
        waits(|claim, received| {
            drop(claim);
            assert_eq!(received(LONG), Some(true));
        });
    }

    #[test]
    fn who_waits_for_a_claim_is_sent_away_when_the_call_is_done() {
        waits(|claim, received| claim.call(|| assert_eq!(received(LONG), Some(false))));
    }

    #[test]
    fn nobody_waits_for_a_thread_that_does_its_call() {
        let claims = TraceeLocks::default();
        let claim = claims.take(7).expect("it is free");
        claim.call(|| assert!(claims.wait_for(7).is_none()));
        assert!(claims.take(7).is_none());
        drop(claim);
        assert!(claims.wait_for(7).is_some());
    }
}
