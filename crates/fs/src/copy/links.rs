//! Preserves hard links within a tree, across threads.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::Statx;

use crate::walk::node::Node;

/// An inode of the source.
type Key = (u32, u32, u64);

/// The inodes that have several names, as long as not all names were visited.
pub(super) struct Links<D> {
    known: Mutex<HashMap<Key, LinkState<D>>>,
    change: Condvar,
}

enum LinkState<D> {
    /// A thread is making the copy.
    Awaited,
    /// The copy's directory and name in the target, and the number of names still expected.
    Made(Arc<Node<D>>, CString, u32),
}

/// What to do with a file that has several names.
pub(super) enum Claim<'a, D> {
    /// There is no copy yet: the caller makes it.
    First(Making<'a, D>),
    /// The copy's directory in the target, and its name there.
    Made(Arc<Node<D>>, CString),
}

/// The duty to make a copy. A drop without [`Making::made`] passes the duty on to another
/// thread.
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

    /// Claims the file of `stat`. Waits while another thread is making its copy.
    pub fn claim(&self, stat: &Statx) -> Claim<'_, D> {
        let key = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let mut known = self.lock();
        loop {
            match known.get_mut(&key) {
                None => {
                    known.insert(key, LinkState::Awaited);
                    let names = stat.stx_nlink;
                    return Claim::First(Making { links: self, key, names, done: false });
                }
                Some(LinkState::Awaited) => {
                    known = self.change.wait(known).unwrap_or_else(PoisonError::into_inner);
                }
                Some(LinkState::Made(node, name, left)) => {
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, LinkState<D>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D> Making<'_, D> {
    /// Records that the copy is `name` in the target's directory `node`.
    pub fn made(mut self, node: &Arc<Node<D>>, name: &CStr) {
        let state =
            LinkState::Made(Arc::clone(node), name.to_owned(), self.names.saturating_sub(1));
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
