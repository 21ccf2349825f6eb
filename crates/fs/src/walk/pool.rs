//! The queue by which busy threads hand work to idle ones.

use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Error;
use super::names::Names;
use super::node::{DirFds, Node};

/// Work in an open directory. The task has a reference to the directory.
pub(super) struct Task<D> {
    pub node: Arc<Node<D>>,
    pub pair: Arc<DirFds>,
    pub what: TaskEntries,
}

pub(super) enum TaskEntries {
    /// The directory itself: the first task of a walk.
    All,
    /// The subdirectory of this name, with everything below.
    Below(CString),
    /// These entries of the directory.
    Entries(Names),
}

/// The queue of tasks, which hardly ever has more tasks than there are threads.
pub(super) struct Pool<D> {
    inner: Mutex<Inner<D>>,
    change: Condvar,
    /// The number of idle threads for which no task is queued.
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

    /// Waits for the next task. Returns `None` when the walk is over.
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

    /// Returns whether an idle thread waits for a task.
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

    /// Ends the walk: all is done, or `error` has happened. The first error is kept.
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

    /// Returns how the walk ended.
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
