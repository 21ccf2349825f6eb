//! What threads that have nothing to do are given by those that have.

use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Error;
use super::names::Names;
use super::node::{DirFds, Node};

/// Something to do in a directory that is open. It has a hold on the directory.
pub(super) struct Task<D> {
    pub node: Arc<Node<D>>,
    pub pair: Arc<DirFds>,
    pub what: What,
}

pub(super) enum What {
    /// The directory itself: how a walk begins.
    All,
    /// The directory of this name in it, with all that is below.
    Below(CString),
    /// These entries of it.
    Entries(Names),
}

/// The tasks that wait for a thread: hardly ever more than there are threads.
pub(super) struct Pool<D> {
    inner: Mutex<Inner<D>>,
    change: Condvar,
    /// How many more threads could work.
    wanted: AtomicUsize,
    over: AtomicBool,
}

struct Inner<D> {
    tasks: VecDeque<Task<D>>,
    idle: usize,
    error: Option<Error>,
}

impl<D> Pool<D> {
    pub fn new(first: Task<D>) -> Self {
        let inner = Inner { tasks: VecDeque::from([first]), idle: 0, error: None };
        Self {
            inner: Mutex::new(inner),
            change: Condvar::new(),
            wanted: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// The next task; none when the walk is over.
    pub fn take(&self) -> Option<Task<D>> {
        let mut inner = self.lock();
        loop {
            if self.is_over() {
                return None;
            }
            if let Some(task) = inner.tasks.pop_front() {
                self.count(&inner);
                return Some(task);
            }
            inner.idle += 1;
            self.count(&inner);
            inner = self.change.wait(inner).unwrap_or_else(PoisonError::into_inner);
            inner.idle -= 1;
            self.count(&inner);
        }
    }

    /// Whether a thread is without a task.
    pub fn wants(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    pub fn give(&self, task: Task<D>) {
        let mut inner = self.lock();
        inner.tasks.push_back(task);
        self.count(&inner);
        drop(inner);
        self.change.notify_one();
    }

    /// The walk is over: all is done, or `error` has happened, of which the first counts.
    pub fn end(&self, error: Option<Error>) {
        let mut inner = self.lock();
        if inner.error.is_none() {
            inner.error = error;
        }
        self.over.store(true, Ordering::Relaxed);
        drop(inner);
        self.change.notify_all();
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// How it ended.
    pub fn outcome(self) -> Result<(), Error> {
        let inner = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        inner.error.map_or(Ok(()), Err)
    }

    fn count(&self, inner: &Inner<D>) {
        self.wanted.store(inner.idle.saturating_sub(inner.tasks.len()), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Inner<D>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
