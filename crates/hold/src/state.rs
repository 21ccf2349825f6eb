//! The state of a run, which all threads that answer its calls share.
//!
//! Nothing waits under its lock, not for a disk and not for another process: a FUSE server
//! of the run may need an answer before it gives one. What has to be done before a call is
//! held comes out as [`Work`](crate::active::Work), is done without the lock, one at a time,
//! and then concluded.

use crate::accounts::{Accounts, End};
use crate::active::{Active, Admission, Done, Via, Work};
use crate::protocol::Notice;
use crate::rights::Gain;
use crate::trouble::Trouble;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use synconce_filter::Call;
use synconce_probe::mounts::DeviceId;

/// How long a call waits for work. Its process may be the server that the work waits for; a
/// sync too many is safe.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Whether a call may be held.
pub(crate) enum Admitted {
    /// It may. As [`Admission::Held`].
    Held { late: bool },
    /// The kernel has to do it.
    Passed,
    /// Something has to be done first, for which this thread may not wait.
    Patience,
    /// Nothing is held any more.
    Over,
}

/// A descriptor whose sync flag was taken away, by its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unsynced {
    pub device: u64,
    pub inode: u64,
}

/// A call that goes on without its sync flag.
pub(crate) struct Changing {
    pub thread: u32,
    pub call: Call,
    pub program: Option<String>,
}

/// Whether calls may be held.
enum Stage {
    Active(Active),
    /// Nothing can be held any more; what was held before is committed.
    Failed(Active, Trouble),
    /// The run is over.
    Over,
}

/// A run and what was done in it so far.
pub(crate) struct State {
    stage: Stage,
    pub accounts: Accounts,
    /// Files that were opened without their sync flag.
    pub unsynced: HashSet<Unsynced>,
    /// Calls that go on without their sync flag, by id.
    pub changing: HashMap<u64, Changing>,
    /// What the user was told of, with [`Notice::NoRightsGained`].
    pub rights_told: HashSet<Gain>,
}

/// What the state of a run leaves behind when it is closed.
pub(crate) struct Closed {
    pub active: Option<Active>,
    /// Why nothing could be held any more.
    pub failure: Option<Trouble>,
    pub accounts: Accounts,
    pub unsynced: HashSet<Unsynced>,
    /// Threads that are still in calls without their sync flag.
    pub unfinished: HashSet<u32>,
}

impl State {
    fn new(stage: Stage) -> Self {
        Self {
            stage,
            accounts: Accounts::default(),
            unsynced: HashSet::new(),
            changing: HashMap::new(),
            rights_told: HashSet::new(),
        }
    }

    /// The run, as long as calls may be held.
    fn active(&mut self) -> Option<&mut Active> {
        match &mut self.stage {
            Stage::Active(active) => Some(active),
            Stage::Failed(..) | Stage::Over => None,
        }
    }

    /// What lets go of `mount`, which is about to be unmounted.
    pub(crate) fn unmount(&mut self, mount: u64) -> Option<Box<dyn FnOnce() + Send>> {
        match &mut self.stage {
            Stage::Active(active) | Stage::Failed(active, _) => active.unmount(mount),
            Stage::Over => None,
        }
    }

    /// Notes that the sync flag of call `id` is about to be taken away; `false` when the run
    /// is over, and the call must keep it.
    pub(crate) fn begin(&mut self, id: u64, changing: Changing) -> bool {
        let is_over = matches!(self.stage, Stage::Over);
        if !is_over {
            self.changing.insert(id, changing);
        }
        !is_over
    }

    fn conclude(&mut self, done: Done) -> Result<Option<Notice>, Trouble> {
        let Some(active) = self.active() else { return Ok(None) };
        let concluded = active.conclude(done);
        if let Err(failure) = &concluded
            && let Stage::Active(active) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            self.stage = Stage::Failed(active, failure.clone());
        }
        concluded
    }

    fn close(self) -> Closed {
        let (active, failure) = match self.stage {
            Stage::Active(active) => (Some(active), None),
            Stage::Failed(active, failure) => (Some(active), Some(failure)),
            Stage::Over => (None, None),
        };
        let mut accounts = self.accounts;
        let mut unfinished = HashSet::new();
        for Changing { thread, call, program } in self.changing.into_values() {
            // When they are done they are not counted any more.
            accounts.count(call.name(), program.as_deref(), End::Held);
            unfinished.insert(thread);
        }
        Closed { active, failure, accounts, unsynced: self.unsynced, unfinished }
    }
}

/// The state of a run, behind its one lock.
#[derive(Clone)]
pub(crate) struct Shared(Arc<(Mutex<State>, Condvar)>);

impl Shared {
    pub(crate) fn new(active: Active) -> Self {
        Self(Arc::new((Mutex::new(State::new(Stage::Active(active))), Condvar::new())))
    }

    /// The state; one that a panicking thread left is still the truth so far.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds out whether a call on `devices` may be held, and does `note` with the state at
    /// the moment at which it may. What has to be done before that is given to `begin`, and
    /// waited for if this thread `may_wait`.
    pub(crate) fn admit(
        &self,
        devices: &[DeviceId],
        via: Via,
        may_wait: bool,
        note: impl FnOnce(&mut State),
        begin: impl Fn(Work),
    ) -> Admitted {
        let (mut deadline, mut tried) = (None, HashSet::new());
        let mut state = self.lock();
        loop {
            let Some(active) = state.active() else { return Admitted::Over };
            match active.admit(devices, via, may_wait) {
                Admission::Held { late } => {
                    note(&mut state);
                    return Admitted::Held { late };
                }
                Admission::Passed => return Admitted::Passed,
                Admission::Busy if !may_wait => return Admitted::Patience,
                Admission::After(work) if !tried.insert(work.device()) => {
                    // No way leads to the file system from this caller.
                    active.give_up(&work);
                    return Admitted::Passed;
                }
                Admission::After(work) => {
                    drop(state);
                    begin(work);
                    state = self.lock();
                    continue;
                }
                Admission::Busy => {}
            }
            let end = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Admitted::Passed;
            }
            let waited = self.0.1.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Concludes work that was done without the lock. What the user should know of it.
    ///
    /// # Errors
    /// Why nothing can be held any more.
    pub(crate) fn conclude(&self, done: Done) -> Result<Option<Notice>, Trouble> {
        let mut state = self.lock();
        if state.active().is_none() {
            // To let go of a pin may take long.
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
        let state = std::mem::replace(&mut *self.lock(), State::new(Stage::Over));
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
        let mut over = State::new(Stage::Over);
        assert!(!over.begin(1, changing()));
        assert!(over.close().unfinished.is_empty());
    }

    #[test]
    fn a_call_that_goes_on_without_its_sync_flag_at_the_end_is_counted_as_held() {
        let shared = Shared::new(Active::for_tests());
        assert!(shared.lock().begin(1, changing()));
        let closed = shared.close();
        assert_eq!(closed.unfinished, HashSet::from([7]));
        assert_eq!(closed.accounts.programs["cp"].held, 1);
        assert!(shared.close().unfinished.is_empty(), "once");
    }
}
