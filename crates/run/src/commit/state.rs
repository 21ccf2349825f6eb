//! The state of a run, which all threads that answer its calls share.
//!
//! No thread waits under its lock, neither for a disk nor for another process: a FUSE server
//! of the run may need an answer before it replies. The [`Work`] that a call needs before it can be
//! held is done on a thread of its own, without the lock; the result is taken over under the lock.
//! At most one work of each [`WorkKind`] is in progress.

use crate::call::rules::MayBlock;
use crate::commit::active::{Active, Done, PATIENCE, TICK, Via, Work, WorkKind};
use crate::report::accounts::{Accounts, End, PassReason};
use crate::report::balance::HeldSyncs;
use crate::report::protocol::Notice;
use crate::report::protocol::OwnFilter;
use crate::report::run_error::RunError;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use synconce_filter::Call;
use synconce_probe::mounts::DeviceId;

/// Whether a call may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The marker is durable, and the commit covers the call.
    Held {
        /// Whether a file system was pinned after the command had started. An earlier
        /// write-back error may have been reported to another process; then only the caller's
        /// own descriptor still returns the error.
        late: bool,
    },
    /// The commit will not cover the call: the call goes to the kernel.
    Passed(PassReason),
    /// The call goes to the kernel and is not counted: no call is held any more, or a signal has
    /// interrupted this call and the caller makes it again.
    Over,
}

/// A call that is to be held.
pub(crate) struct CallToHold<'a> {
    /// The file systems that the call concerns; none for sync(), and if they are unknown.
    pub devices: &'a [DeviceId],
    /// The caller, and a descriptor that may lead to the file systems.
    pub via: Via,
    /// Whether the answering thread may wait for work.
    pub may_wait: bool,
    /// Whether the call still waits for an answer.
    pub call_waits: &'a dyn Fn() -> bool,
    /// Does work on another thread, and then calls [`SharedState::conclude`].
    pub start_work: &'a dyn Fn(Work),
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

const UNCOVERED: Admission = Admission::Passed(PassReason::Uncovered);

/// How many threads with held calls are noted, at most.
const MOST_SYNCED: usize = 1 << 16;

/// Whether calls may be held.
#[derive(Default)]
enum Hold {
    Active(Active),
    /// No call can be held any more; what was held before is committed.
    Failed(Active, RunError),
    /// The run is over.
    #[default]
    Over,
}

impl Hold {
    /// Returns the run, unless no call can be held any more.
    fn active(&mut self) -> Option<&mut Active> {
        match self {
            Self::Active(active) => Some(active),
            Self::Failed(..) | Self::Over => None,
        }
    }
}

/// What was done in a run so far.
#[derive(Default)]
pub(crate) struct RunNotes {
    pub accounts: Accounts,
    pub held_syncs: HeldSyncs,
    /// Threads with held calls, up to [`MOST_SYNCED`].
    pub synced: HashSet<u32>,
    /// The wall time of the checkpoints.
    pub checkpoint_micros: u64,
    /// Files that were opened without their sync flag.
    pub unsynced: HashSet<Unsynced>,
    /// Whether a call passed because its caller could not be examined.
    pub passed_unseen: bool,
}

/// A run and what was done in it so far.
#[derive(Default)]
pub(crate) struct State {
    hold: Hold,
    pub notes: RunNotes,
    /// Calls in progress without their sync flag, by id.
    pub changing: HashMap<u64, Changing>,
    /// The kinds of filters for which [`Notice::OwnFilter`] was printed.
    pub own_filters: HashSet<OwnFilter>,
    /// The work in progress, and when it began.
    works: HashMap<WorkKind, Instant>,
    /// Threads whose calls wait for work, and when each wait ends. A call that is interrupted
    /// and made again keeps the end of its first wait.
    waiting: HashMap<u32, Instant>,
}

/// What remains of the state of a run when it is closed.
pub(crate) struct Closed {
    pub active: Option<Active>,
    /// Why no call could be held any more.
    pub failure: Option<RunError>,
    pub notes: RunNotes,
    /// Threads that are still in calls without their sync flag.
    pub unfinished: HashSet<u32>,
}

impl State {
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
        self.notes.held_syncs.count(call, device);
        if self.notes.synced.len() < MOST_SYNCED {
            self.notes.synced.insert(thread);
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
        self.notes.accounts.take_back(call.name(), program, end);
        if end == End::Held {
            self.notes.held_syncs.take_back(call, device);
        }
    }

    fn close(self) -> Closed {
        let (active, failure) = match self.hold {
            Hold::Active(active) => (Some(active), None),
            Hold::Failed(active, failure) => (Some(active), Some(failure)),
            Hold::Over => (None, None),
        };
        let (mut notes, mut unfinished) = (self.notes, HashSet::new());
        for Changing { thread, call, program } in self.changing.into_values() {
            // Counted now: after the end of the run no answer is counted.
            notes.accounts.count(call.name(), program.as_deref(), End::Held);
            unfinished.insert(thread);
        }
        Closed { active, failure, notes, unfinished }
    }
}

/// The state of a run, behind its one lock.
#[derive(Clone)]
pub(crate) struct SharedState(Arc<(Mutex<State>, Condvar)>);

impl SharedState {
    pub(crate) fn new(active: Active) -> Self {
        let state = State { hold: Hold::Active(active), ..State::default() };
        Self(Arc::new((Mutex::new(state), Condvar::new())))
    }

    /// Locks the state. After the panic of a thread the state is still valid.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether a call may be held. If it may, calls `grant` under the lock. First starts
    /// the work that the call needs, and waits for it: at most for [`PATIENCE`], and while the
    /// caller still waits for its answer.
    ///
    /// # Errors
    /// The call needs work, and this thread may not wait.
    pub(crate) fn admit(
        &self,
        call: &CallToHold<'_>,
        grant: impl FnOnce(&mut State) -> Admission,
    ) -> Result<Admission, MayBlock> {
        let (mut tried, thread) = (HashSet::new(), call.via.thread);
        let mut state = self.lock();
        let admission = loop {
            let inner = &mut *state;
            let Some(active) = inner.hold.active() else { break Admission::Over };
            if let Some(reason) = active.why_passed(call.devices) {
                break Admission::Passed(reason);
            }
            let Some(kind) = active.needed_work(call.devices) else { break grant(inner) };
            match inner.works.get(&kind) {
                // No later call waits for work that hangs.
                Some(began) if began.elapsed() >= PATIENCE => break UNCOVERED,
                _ if !call.may_wait => return Err(MayBlock),
                Some(_) => {}
                // No path leads from this caller to the file system.
                None if !tried.insert(kind) => break UNCOVERED,
                None => {
                    let work = active.work(kind, call.via);
                    inner.works.insert(kind, Instant::now());
                    drop(state);
                    (call.start_work)(work);
                    state = self.lock();
                    continue;
                }
            }
            let patience = || Instant::now() + PATIENCE;
            let end = *state.waiting.entry(thread).or_insert_with(patience);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break UNCOVERED;
            }
            if !(call.call_waits)() {
                return Ok(Admission::Over);
            }
            let waited = self.0.1.wait_timeout(state, left.min(TICK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting.remove(&thread);
        Ok(admission)
    }

    /// Takes over the result of work that was done without the lock, and returns the notice about
    /// it.
    ///
    /// # Errors
    /// Why no call can be held any more.
    pub(crate) fn conclude(&self, done: Done) -> Result<Option<Notice>, RunError> {
        let mut state = self.lock();
        state.works.remove(&done.kind());
        let Some(active) = state.hold.active() else {
            // Closing a pin may take long.
            drop(state);
            drop(done);
            return Ok(None);
        };
        let concluded = active.take_over(done);
        if let Err(failure) = &concluded
            && let Hold::Active(active) = std::mem::take(&mut state.hold)
        {
            state.hold = Hold::Failed(active, failure.clone());
        }
        self.0.1.notify_all();
        concluded
    }

    /// Ends the holding: from here on every call goes to the kernel.
    pub(crate) fn close(&self) -> Closed {
        let state = std::mem::take(&mut *self.lock());
        self.0.1.notify_all();
        state.close()
    }
}

#[cfg(test)]
mod tests;
