//! Threads for calls that may block us.
//!
//! The loop that answers must never wait for a process that waits for it: a
//! path or a page of memory may belong to a FUSE daemon inside the run. What
//! could wait, and what traces, runs on these threads; one is added whenever
//! all are busy.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

type Job = Box<dyn FnOnce() -> After + Send>;

/// What becomes of the thread that has done a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It waits for another.
    Idle,
    /// It ends, which lets go of whatever it traces.
    End,
}

/// Threads that are made as they are needed.
pub(crate) struct Workers {
    sender: mpsc::Sender<Job>,
    receiver: Arc<Mutex<mpsc::Receiver<Job>>>,
    /// Threads that wait for a job, less the jobs that wait for a thread.
    idle: Arc<AtomicUsize>,
    /// Jobs that are not done yet.
    busy: Arc<AtomicUsize>,
}

const STACK: usize = 256 * 1024;

impl Workers {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        let receiver = Arc::new(Mutex::new(receiver));
        Self { sender, receiver, idle: Arc::default(), busy: Arc::default() }
    }

    /// How many jobs are under way.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(SeqCst)
    }

    /// Runs `job` on a thread; gives it back when no thread can be had.
    pub(crate) fn run(&self, job: impl FnOnce() -> After + Send + 'static) -> Result<(), ()> {
        let taken = self.idle.fetch_update(SeqCst, SeqCst, |idle| idle.checked_sub(1));
        if taken.is_err() {
            self.add()?;
        }
        self.busy.fetch_add(1, SeqCst);
        // We hold the receiver, so it is there.
        self.sender.send(Box::new(job)).map_err(drop)
    }

    /// Adds a thread, which counts as taken until its first job is done.
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
