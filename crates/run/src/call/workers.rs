//! Worker threads for calls that may block.
//!
//! The loop that answers calls must never wait for a process that waits for an answer: a path
//! or a page of memory may belong to a FUSE daemon inside the run. Lookups that could block,
//! and tracing, run on these threads. A thread is added whenever all are busy.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() -> After + Send>;

/// What a worker thread does after a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Waits for another job.
    Idle,
    /// Exits, which detaches it from the threads that it traces.
    End,
}

/// Worker threads, created when they are needed.
pub(crate) struct Workers {
    queue: Arc<Queue>,
    /// The number of threads that wait for a job, minus the jobs that wait for a thread.
    idle: Arc<AtomicUsize>,
    /// The number of unfinished jobs.
    busy: Arc<AtomicUsize>,
}

/// Jobs that no thread has taken. A job wakes one thread, where a shared `mpsc::Receiver` wakes a
/// second one to wait in its place.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    has_changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// No more jobs will come.
    is_closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.has_changed.notify_one();
    }

    /// Waits for a job. Returns `None` once there is none and no more will come.
    fn take(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            match waiting.jobs.pop_front() {
                Some(job) => return Some(job),
                None if waiting.is_closed => return None,
                None => {
                    let woken = self.has_changed.wait(waiting);
                    waiting = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.has_changed.notify_all();
    }
}

const STACK: usize = 256 * 1024;

impl Workers {
    pub(crate) fn new() -> Self {
        Self { queue: Arc::default(), idle: Arc::default(), busy: Arc::default() }
    }

    /// Returns the number of unfinished jobs.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(SeqCst)
    }

    /// Runs `job` on a worker thread. Returns an error if no thread can be created.
    pub(crate) fn run(&self, job: impl FnOnce() -> After + Send + 'static) -> Result<(), ()> {
        let taken = self.idle.fetch_update(SeqCst, SeqCst, |idle| idle.checked_sub(1));
        if taken.is_err() {
            self.add()?;
        }
        self.busy.fetch_add(1, SeqCst);
        self.queue.add(Box::new(job));
        Ok(())
    }

    /// Adds a thread, which counts as busy until its first job is done.
    fn add(&self) -> Result<(), ()> {
        let (queue, idle, busy) =
            (Arc::clone(&self.queue), Arc::clone(&self.idle), Arc::clone(&self.busy));
        let work = move || {
            while let Some(job) = queue.take() {
                let after = job();
                busy.fetch_sub(1, SeqCst);
                if after == After::End {
                    return;
                }
                idle.fetch_add(1, SeqCst);
            }
        };
        thread::Builder::new()
            .name("call".into())
            .stack_size(STACK)
            .spawn(work)
            .map(drop)
            .map_err(drop)
    }
}
