//! Locks of traced threads: a thread is traced by one worker at a time.
//!
//! A call that a signal or a freezer interrupts is repeated, also after it was received. So two
//! workers may have an old and a new call of the same caller. The kernel would refuse the second
//! tracer.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The locked threads.
#[derive(Debug, Default)]
pub(crate) struct TraceeLocks {
    threads: Mutex<HashMap<u32, Traced>>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traced {
    /// The tracer prepares or finishes the thread's call.
    Led,
    /// The thread executes the call.
    Calls,
}

/// The exclusive right to trace a thread; released on drop.
#[derive(Debug)]
pub(crate) struct TraceeLock<'a> {
    claims: &'a TraceeLocks,
    thread: u32,
}

impl TraceeLocks {
    /// Locks `thread`, after waiting for another holder of the lock. Returns `None` while the
    /// thread executes a changed call: a new notification is then that same call.
    pub(crate) fn wait_for(&self, thread: u32) -> Option<TraceeLock<'_>> {
        let led = |threads: &mut HashMap<_, _>| threads.get(&thread) == Some(&Traced::Led);
        let waited = self.changed.wait_while(self.threads(), led);
        claim(self, &mut waited.unwrap_or_else(PoisonError::into_inner), thread)
    }

    /// Locks `thread`, unless it is locked.
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
    /// Marks the thread as executing its call while `wait` runs.
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

    /// Runs `then` while another thread waits for the lock of thread 7. `then` gets the lock
    /// and a function that returns whether the other thread got it.
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
    fn no_thread_waits_for_a_thread_that_does_its_call() {
        let claims = TraceeLocks::default();
        let claim = claims.take(7).expect("it is free");
        claim.call(|| assert!(claims.wait_for(7).is_none()));
        assert!(claims.take(7).is_none());
        drop(claim);
        assert!(claims.wait_for(7).is_some());
    }
}
