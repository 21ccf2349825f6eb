//! Hard links within the tree, found by whichever thread comes by.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::Statx;

use super::super::node::Node;

/// An inode of the source.
type Key = (u32, u32, u64);

/// The inodes with several names of which not all were met. Others are not in here.
pub(super) struct Links<D> {
    known: Mutex<HashMap<Key, State<D>>>,
    change: Condvar,
}

enum State<D> {
    /// A thread is about to make it.
    Awaited,
    /// It is there, in the target, under this name; so many more names are expected.
    Made(Arc<Node<D>>, CString, u32),
}

/// What to do with a file that has several names.
pub(super) enum Claim<'a, D> {
    /// Nobody has made it: the caller does.
    First(Making<'a, D>),
    /// It is there, as this name in this directory of the target.
    Made(Arc<Node<D>>, CString),
}

/// The duty to make a file, or to let another thread do it.
pub(super) struct Making<'a, D> {
    links: &'a Links<D>,
    key: Key,
    names: u32,
    done: bool,
}

impl<D> Links<D> {
    pub fn new() -> Self {
        Self { known: Mutex::new(HashMap::new()), change: Condvar::new() }
    }

    /// Waits at most until another thread has created the same file.
    pub fn claim(&self, stat: &Statx) -> Claim<'_, D> {
        let key = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let mut known = self.lock();
        loop {
            match known.get_mut(&key) {
                None => {
                    known.insert(key, State::Awaited);
                    let names = stat.stx_nlink;
                    return Claim::First(Making { links: self, key, names, done: false });
                }
                Some(State::Awaited) => {
                    known = self.change.wait(known).unwrap_or_else(PoisonError::into_inner);
                }
                Some(State::Made(node, name, left)) => {
                    let made = Claim::Made(Arc::clone(node), name.clone());
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        known.remove(&key);
                    }
                    return made;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, State<D>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D> Making<'_, D> {
    /// It is `name` in the directory `node` of the target from now on.
    pub fn made(mut self, node: &Arc<Node<D>>, name: &CStr) {
        let state = State::Made(Arc::clone(node), name.to_owned(), self.names.saturating_sub(1));
        self.links.lock().insert(self.key, state);
        self.done = true;
        self.links.change.notify_all();
    }
}

impl<D> Drop for Making<'_, D> {
    fn drop(&mut self) {
        if !self.done {
            self.links.lock().remove(&self.key);
            self.links.change.notify_all();
        }
    }
}
