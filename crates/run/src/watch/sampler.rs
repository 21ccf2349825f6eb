//! How often nothing else of the command could run while a sync was waited for.
//!
//! At random moments during waits, a thread looks at the state of each thread of the command.
//! The kernel has no count of this: a wait for a journal is not counted as a wait for I/O
//! (`/proc/pressure`), and sums of processor time do not show what could have run.

use crate::process::process_tree::{Walk, state};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The mean time between two looks, if a look takes at most a twentieth of it.
const PAUSE: Duration = Duration::from_millis(2);
const SHARE: u32 = 20;

#[derive(Default)]
pub(super) struct Sampler(Mutex<SamplerState>);

#[derive(Default)]
struct SamplerState {
    /// Threads whose syncs are in progress.
    waiting: HashSet<u32>,
    looks: Looks,
    has_thread: bool,
}

/// What the looks have shown.
#[derive(Clone, Copy, Default)]
pub(super) struct Looks {
    pub count: u64,
    /// How often nothing else of the command could run.
    pub alone: u64,
    /// The sum, over all looks, of the share of time that the waits cost the command, in
    /// thousandths: 500 while one of two CPUs had nothing to do.
    pub lost: u64,
}

/// A wait in progress; it ends when this value is dropped.
pub(super) struct Wait<'a>(&'a Sampler, u32);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting.remove(&self.1);
    }
}

impl Sampler {
    /// Notes that `thread` waits for a sync.
    pub(super) fn enter(self: &Arc<Self>, thread: u32) -> Wait<'_> {
        let is_first = {
            let mut state = self.lock();
            state.waiting.insert(thread);
            !std::mem::replace(&mut state.has_thread, true)
        };
        if is_first {
            let sampler = Arc::downgrade(self);
            // Without the thread there are no looks, and the report says less.
            let _ = thread::Builder::new().name("look".into()).spawn(move || look_on(&sampler));
        }
        Wait(self, thread)
    }

    /// Returns what the looks have shown.
    pub(super) fn looks(&self) -> Looks {
        self.lock().looks
    }

    fn lock(&self) -> MutexGuard<'_, SamplerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks once, if a sync is waited for.
    fn look(&self) {
        let waiting = self.lock().waiting.clone();
        if waiting.is_empty() {
            return;
        }
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let Some(running) = running(&waiting, cpus) else { return };
        let Looks { count, alone, lost } = &mut self.lock().looks;
        *count += 1;
        *alone += u64::from(running == 0);
        *lost += 1000 - (1000 * running / (running + waiting.len()).min(cpus)) as u64;
    }
}

/// Looks until the sampler is dropped.
fn look_on(sampler: &Weak<Sampler>) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut mean = PAUSE;
    loop {
        // xorshift64: random pauses between half and one and a half of the mean, so that the looks
        // do not fall in step with the command.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        thread::sleep(mean / 2 + mean * (random % 1024) as u32 / 1024);
        let Some(sampler) = sampler.upgrade() else { return };
        let began = Instant::now();
        sampler.look();
        mean = PAUSE.max(began.elapsed() * SHARE);
    }
}

/// Counts the threads of the command that are not in `waiting` and run, may run, or are in an
/// uninterruptible wait; at most `limit`. Returns `None` if the kernel lists no children
/// (`CONFIG_PROC_CHILDREN`).
fn running(waiting: &HashSet<u32>, limit: usize) -> Option<usize> {
    let mut count = 0;
    for (process, threads) in Walk::over_ours()? {
        for thread in threads {
            if !waiting.contains(&thread) && matches!(state(process, thread), Some('R' | 'D')) {
                count += 1;
                if count == limit {
                    return Some(count);
                }
            }
        }
    }
    Some(count)
}
