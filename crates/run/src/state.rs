//! The state of a run, which all threads that answer its calls share.
//!
//! No thread waits under its lock, neither for a disk nor for another process: a FUSE server
//! of the run may need an answer before it replies. [`Work`](crate::active::Work) that
//! precedes a held call is returned, done without the lock, and then concluded. Each file
//! system has at most one work in progress.

use crate::accounts::{Accounts, End, PassReason};
use crate::active::{Active, Admission, Done, PATIENCE, TICK, Work};
use crate::balance::HeldSyncs;
use crate::policy::OwnFilter;
use crate::protocol::Notice;
use crate::run_error::RunError;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use synconce_filter::Call;
use synconce_probe::mounts::DeviceId;

/// Whether a call may be held.
pub(crate) enum Admitted {
    /// The call may be held; `late` as in [`Admission::Held`].
    Held { late: bool },
    /// The call has to go to the kernel.
    Passed(PassReason),
    /// Some work has to be done first, and this thread may not wait.
    Patience,
    /// The run has failed or is over: no call is held any more.
    Over,
    /// The call no longer waits for an answer: it was interrupted, and is made again.
    Gone,
}

/// The file of a descriptor whose sync flag was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unsynced {
    pub device: u64,
    pub inode: u64,
}

/// A call in progress without its sync flag.
pub(crate) struct Changing {
    pub thread: u32,
    pub call: Call,
    pub program: Option<String>,
}

/// How many threads with held calls are noted, at most.
const MOST_SYNCED: usize = 1 << 16;

/// Whether calls may be held.
enum Hold {
    Active(Active),
    /// No call can be held any more; what was held before is committed.
    Failed(Active, RunError),
    /// The run is over.
    Over,
}

/// A run and what was done in it so far.
pub(crate) struct State {
    hold: Hold,
    pub accounts: Accounts,
    pub held_syncs: HeldSyncs,
    /// Threads with held calls, up to [`MOST_SYNCED`].
    synced: HashSet<u32>,
    /// The wall time of the checkpoints.
    pub checkpoint_micros: u64,
    /// Files that were opened without their sync flag.
    pub unsynced: HashSet<Unsynced>,
    /// Calls in progress without their sync flag, by id.
    pub changing: HashMap<u64, Changing>,
    /// Whether a call passed because its caller could not be examined.
    pub passed_unseen: bool,
    /// The kinds of filters for which [`Notice::OwnFilter`] was printed.
    pub own_filters: HashSet<OwnFilter>,
    /// Threads whose calls wait for work, and when each wait ends. A call that is interrupted
    /// and made again keeps the end of its first wait.
    waiting: HashMap<u32, Instant>,
}

/// What remains of the state of a run when it is closed.
pub(crate) struct Closed {
    pub active: Option<Active>,
    /// Why no call could be held any more.
    pub failure: Option<RunError>,
    pub accounts: Accounts,
    pub held_syncs: HeldSyncs,
    /// Threads with held calls.
    pub synced: HashSet<u32>,
    /// The wall time of the checkpoints.
    pub checkpoint_micros: u64,
    pub unsynced: HashSet<Unsynced>,
    /// Threads that are still in calls without their sync flag.
    pub unfinished: HashSet<u32>,
    /// Whether a call passed because its caller could not be examined.
    pub passed_unseen: bool,
}

impl State {
    fn new(hold: Hold) -> Self {
        Self {
            hold,
            accounts: Accounts::default(),
            held_syncs: HeldSyncs::default(),
            synced: HashSet::new(),
            checkpoint_micros: 0,
            unsynced: HashSet::new(),
            changing: HashMap::new(),
            passed_unseen: false,
            own_filters: HashSet::new(),
            waiting: HashMap::new(),
        }
    }

    /// Returns the run, as long as calls may be held.
    fn active(&mut self) -> Option<&mut Active> {
        match &mut self.hold {
            Hold::Active(active) => Some(active),
            Hold::Failed(..) | Hold::Over => None,
        }
    }

    /// Returns the run, as long as the command goes on.
    pub(crate) fn run(&mut self) -> Option<&mut Active> {
        match &mut self.hold {
            Hold::Active(active) | Hold::Failed(active, _) => Some(active),
            Hold::Over => None,
        }
    }

    /// Notes that the sync flag of call `id` is about to be taken away. Returns `false` if the
    /// run is over; the call must then keep its flag.
    pub(crate) fn begin(&mut self, id: u64, changing: Changing) -> bool {
        let is_over = matches!(self.hold, Hold::Over);
        if !is_over {
            self.changing.insert(id, changing);
        }
        !is_over
    }

    /// Counts a held `call` of `thread` on `device` among the held syncs.
    pub(crate) fn note_held(&mut self, thread: u32, call: Call, device: Option<DeviceId>) {
        self.held_syncs.count(call, device);
        if self.synced.len() < MOST_SYNCED {
            self.synced.insert(thread);
        }
    }

    /// Undoes the count of a held or passed `call` on `device`.
    pub(crate) fn take_back(
        &mut self,
        call: Call,
        device: Option<DeviceId>,
        program: Option<&str>,
        end: End,
    ) {
        self.accounts.take_back(call.name(), program, end);
        if end == End::Held {
            self.held_syncs.take_back(call, device);
        }
    }

    fn conclude(&mut self, done: Done) -> Result<Option<Notice>, RunError> {
        let Some(active) = self.active() else { return Ok(None) };
        let concluded = active.conclude(done);
        if let Err(failure) = &concluded
            && let Hold::Active(active) = std::mem::replace(&mut self.hold, Hold::Over)
        {
            self.hold = Hold::Failed(active, failure.clone());
        }
        concluded
    }

    fn close(self) -> Closed {
        let (active, failure) = match self.hold {
            Hold::Active(active) => (Some(active), None),
            Hold::Failed(active, failure) => (Some(active), Some(failure)),
            Hold::Over => (None, None),
        };
        let (mut accounts, passed_unseen) = (self.accounts, self.passed_unseen);
        let mut unfinished = HashSet::new();
        for Changing { thread, call, program } in self.changing.into_values() {
            // Counted now, because their ends are not counted any more.
            accounts.count(call.name(), program.as_deref(), End::Held);
            unfinished.insert(thread);
        }
        Closed {
            active,
            failure,
            accounts,
            held_syncs: self.held_syncs,
            synced: self.synced,
            checkpoint_micros: self.checkpoint_micros,
            unsynced: self.unsynced,
            unfinished,
            passed_unseen,
        }
    }
}

/// The state of a run, behind its one lock.
#[derive(Clone)]
pub(crate) struct SharedState(Arc<(Mutex<State>, Condvar)>);

impl SharedState {
    pub(crate) fn new(active: Active) -> Self {
        Self(Arc::new((Mutex::new(State::new(Hold::Active(active))), Condvar::new())))
    }

    /// Locks the state. A state that a panicking thread left is still valid.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides by `ask` whether a call of `thread` may be held, and calls `note` with the state at
    /// the moment when it may. Work that has to be done before is given to `begin`; a thread that
    /// `may_wait` waits for it as long as `call_waits`.
    pub(crate) fn admit(
        &self,
        ask: impl Fn(&mut Active) -> Admission,
        thread: u32,
        may_wait: bool,
        note: impl FnOnce(&mut State),
        begin: impl Fn(Work),
        call_waits: impl Fn() -> bool,
    ) -> Admitted {
        let mut tried = HashSet::new();
        let mut state = self.lock();
        let admitted = loop {
            let Some(active) = state.active() else { break Admitted::Over };
            match ask(active) {
                Admission::Held { late } => {
                    note(&mut state);
                    break Admitted::Held { late };
                }
                Admission::Passed(reason) => break Admitted::Passed(reason),
                Admission::Busy if !may_wait => return Admitted::Patience,
                Admission::After(work) if !tried.insert(work.device()) => {
                    // No path leads from this caller to the file system.
                    active.give_up(&work);
                    break Admitted::Passed(PassReason::Uncovered);
                }
                Admission::After(work) => {
                    drop(state);
                    begin(work);
                    state = self.lock();
                    continue;
                }
                Admission::Busy => {}
            }
            let patience = || Instant::now() + PATIENCE;
            let end = *state.waiting.entry(thread).or_insert_with(patience);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Admitted::Passed(PassReason::Uncovered);
            }
            if !call_waits() {
                return Admitted::Gone;
            }
            let waited = self.0.1.wait_timeout(state, left.min(TICK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting.remove(&thread);
        admitted
    }

    /// Records work that was done without the lock, and returns the notice about it.
    ///
    /// # Errors
    /// Why no call can be held any more.
    pub(crate) fn conclude(&self, done: Done) -> Result<Option<Notice>, RunError> {
        let mut state = self.lock();
        if state.active().is_none() {
            // Closing a pin may take long.
            drop(state);
            drop(done);
            return Ok(None);
        }
        let concluded = state.conclude(done);
        self.0.1.notify_all();
        concluded
    }

    /// Ends the holding: from here on every call goes to the kernel.
    pub(crate) fn close(&self) -> Closed {
        let state = std::mem::replace(&mut *self.lock(), State::new(Hold::Over));
        self.0.1.notify_all();
        state.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changing() -> Changing {
        Changing { thread: 7, call: Call::Openat, program: Some("cp".to_owned()) }
    }

    #[test]
    fn a_call_keeps_its_sync_flag_once_the_run_is_over() {
        let mut over = State::new(Hold::Over);
        assert!(!over.begin(1, changing()));
        assert!(over.close().unfinished.is_empty());
    }

    #[test]
    fn a_call_that_goes_on_without_its_sync_flag_at_the_end_is_counted_as_held() {
        let shared = SharedState::new(Active::for_tests());
        assert!(shared.lock().begin(1, changing()));
        let closed = shared.close();
        assert_eq!(closed.unfinished, HashSet::from([7]));
        assert_eq!(closed.accounts.programs["cp"].held, 1);
        assert!(shared.close().unfinished.is_empty(), "once");
    }
}
