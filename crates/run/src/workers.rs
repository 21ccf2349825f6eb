//! Worker threads for calls that may block.
//!
//! The loop that answers calls must never wait for a process that waits for an answer: a path
//! or a page of memory may belong to a FUSE daemon inside the run. Lookups that could block,
//! and tracing, run on these threads. A thread is added whenever all are busy.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
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
    sender: mpsc::Sender<Job>,
    receiver: Arc<Mutex<mpsc::Receiver<Job>>>,
    /// The number of threads that wait for a job, minus the jobs that wait for a thread.
    idle: Arc<AtomicUsize>,
    /// The number of unfinished jobs.
    busy: Arc<AtomicUsize>,
}

const STACK: usize = 256 * 1024;

impl Workers {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        let receiver = Arc::new(Mutex::new(receiver));
        Self { sender, receiver, idle: Arc::default(), busy: Arc::default() }
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
        // `self` holds the receiver, so the send succeeds.
        self.sender.send(Box::new(job)).map_err(drop)
    }

    /// Adds a thread, which counts as busy until its first job is done.
    fn add(&self) -> Result<(), ()> {
        let (receiver, idle, busy) =
            (Arc::clone(&self.receiver), Arc::clone(&self.idle), Arc::clone(&self.busy));
        let work = move || {
            loop {
                let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(job) = job else { return };
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
