//! The active faults, and how each request fares under them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::rig::fault::{Fault, Requests};

/// What happens to a request. One that hangs is kept until [`Faults::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFate<T> {
    Do(T),
    Fail(T),
    Hangs,
}

/// A hanging request, as the closure that performs it.
pub(super) type Hanging = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(super) struct Faults {
    state: Mutex<FaultState>,
}

#[derive(Default)]
struct FaultState {
    standing: Vec<Standing>,
    hanging: Vec<Hanging>,
}

struct Standing {
    fault: Fault,
    seen: u64,
    struck: u64,
    until: Option<Instant>,
}

impl Faults {
    pub(super) fn add(&self, fault: Fault) {
        let until = fault.lasting.map(|time| Instant::now() + time);
        self.state().standing.push(Standing { fault, seen: 0, struck: 0, until });
    }

    /// Returns what to do with `request`, of one kind; `data` is the data of a write. If the
    /// request hangs, the closure that `hang` makes of it performs it later. Verdict and hanging
    /// are one step: a request that hung after a release would hang for ever.
    pub(super) fn verdict<T>(
        &self,
        kind: Requests,
        data: &[u8],
        request: T,
        hang: impl FnOnce(T) -> Hanging,
    ) -> RequestFate<T> {
        let mut state = self.state();
        if state.standing.is_empty() {
            return RequestFate::Do(request);
        }
        let now = Instant::now();
        state.standing.retain(|standing| !standing.is_over(now));
        let strikes = |standing: &mut Standing| {
            (standing.fits(kind, data) && standing.strikes()).then_some(standing.fault.hangs)
        };
        match state.standing.iter_mut().find_map(strikes) {
            None => RequestFate::Do(request),
            Some(false) => RequestFate::Fail(request),
            Some(true) => {
                state.hanging.push(hang(request));
                RequestFate::Hangs
            }
        }
    }

    pub(super) fn hanging(&self) -> u64 {
        self.state().hanging.len() as u64
    }

    /// Ends the faults of these kinds of requests.
    pub(super) fn end(&self, requests: Requests) {
        let kept = |standing: &Standing| !requests.contain(standing.fault.requests);
        self.state().standing.retain(kept);
    }

    /// Performs the hanging requests. Each is checked again, and hangs again if a fault still
    /// applies.
    pub(super) fn release(&self) {
        let hanging = std::mem::take(&mut self.state().hanging);
        for request in hanging {
            request();
        }
    }

    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now >= until)
            || self.fault.times.is_some_and(|times| self.struck >= times)
    }

    fn fits(&self, kind: Requests, data: &[u8]) -> bool {
        let holds = |bytes: &Vec<u8>| find(data, bytes);
        self.fault.requests.contain(kind) && self.fault.holding.as_ref().is_none_or(holds)
    }

    /// Counts a matching request; returns whether the fault hits it.
    fn strikes(&mut self) -> bool {
        self.seen += 1;
        let strikes = self.seen > self.fault.after;
        self.struck += u64::from(strikes);
        strikes
    }
}

fn find(data: &[u8], bytes: &[u8]) -> bool {
    let Some(first) = bytes.first() else {
        return !data.is_empty();
    };
    let mut rest = data;
    // Find the first byte by a loop that compiles to fast code: the data is up to 1 MiB.
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = &rest[at..];
        if rest.starts_with(bytes) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const DONE: RequestFate<()> = RequestFate::Do(());
    const FAILED: RequestFate<()> = RequestFate::Fail(());

    fn verdict(faults: &Faults, kind: Requests, data: &[u8]) -> RequestFate<()> {
        faults.verdict(kind, data, (), |()| panic!("no fault hangs"))
    }

    fn verdicts(fault: Fault, count: usize, kind: Requests) -> Vec<RequestFate<()>> {
        let faults = Faults::default();
        faults.add(fault);
        (0..count).map(|_| verdict(&faults, kind, b"")).collect()
    }

    #[test]
    fn the_third_flush_fails_and_no_other() {
        let fault = Fault::flushes().after(2).times(1);
        let expected = [DONE, DONE, FAILED, DONE];
        assert_eq!(verdicts(fault.clone(), 4, Requests::Flushes), expected);
        assert_eq!(verdicts(fault, 4, Requests::Writes), [DONE; 4]);
    }

    #[test]
    fn everything_fails_on_a_dead_disk() {
        for kind in [Requests::Reads, Requests::Writes, Requests::Flushes] {
            assert_eq!(verdicts(Fault::everything(), 3, kind), [FAILED; 3]);
        }
    }

    #[test]
    fn a_write_fails_if_it_holds_the_bytes() {
        let faults = Faults::default();
        faults.add(Fault::writes().holding("poison").times(1));
        assert_eq!(verdict(&faults, Requests::Writes, b"popoiso"), DONE);
        assert_eq!(verdict(&faults, Requests::Reads, b""), DONE);
        assert_eq!(verdict(&faults, Requests::Writes, b"popoisonous"), FAILED);
        assert_eq!(verdict(&faults, Requests::Writes, b"poison"), DONE);
    }

    #[test]
    fn a_fault_whose_time_is_over_is_gone() {
        assert_eq!(verdicts(Fault::reads().lasting(Duration::ZERO), 1, Requests::Reads), [DONE]);
        assert_eq!(
            verdicts(Fault::reads().lasting(Duration::from_secs(3600)), 1, Requests::Reads),
            [FAILED]
        );
    }

    #[test]
    fn what_hangs_is_done_at_the_release() {
        let faults = Faults::default();
        faults.add(Fault::everything().hanging());
        let (sender, done) = std::sync::mpsc::channel();
        let fate = faults.verdict(Requests::Writes, b"", sender, |sender| {
            // No release may come between the verdict and this.
            assert!(faults.state.try_lock().is_err());
            Box::new(move || sender.send(()).unwrap())
        });
        assert!(matches!(fate, RequestFate::Hangs));
        assert_eq!((faults.hanging(), done.try_recv().is_ok()), (1, false));
        faults.end(Requests::Everything);
        faults.release();
        assert_eq!((faults.hanging(), done.try_recv().is_ok()), (0, true));
        assert_eq!(verdict(&faults, Requests::Writes, b""), DONE);
    }
}
