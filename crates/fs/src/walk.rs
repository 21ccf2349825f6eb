//! Starts a walk and its threads.

pub(crate) mod directory;
pub(crate) mod names;
pub(crate) mod node;
mod pool;
pub(crate) mod tally;
pub(crate) mod visitor;
mod worker;

use std::ffi::CStr;
use std::sync::Arc;
use std::thread;

use rustix::fs::FileType;

use self::names::Names;
use self::node::{DirFds, Node};
use self::pool::{Pool, Task, TaskEntries};
use self::visitor::Visitor;
use self::worker::Descent;
use super::Error;

/// Walks the tree at the open directory `root`.
pub(super) fn walk<V: Visitor>(
    visitor: &V,
    root: DirFds,
    data: V::Data,
    threads: usize,
) -> Result<(), Error> {
    begin(visitor, root, data, TaskEntries::All, threads)
}

/// Walks the tree at `name` in the open directory `parent`, of which nothing else is visited.
/// The walk's root is `parent`.
pub(super) fn walk_entry<V: Visitor>(
    visitor: &V,
    parent: DirFds,
    data: V::Data,
    name: &CStr,
    threads: usize,
) -> Result<(), Error> {
    let mut names = Names::default();
    names.push(name, FileType::Unknown, 0);
    begin(visitor, parent, data, TaskEntries::Entries(names), threads)
}

fn begin<V: Visitor>(
    visitor: &V,
    root: DirFds,
    data: V::Data,
    what: TaskEntries,
    threads: usize,
) -> Result<(), Error> {
    let root = Arc::new(root);
    let node = Node::new(None, c"".to_owned(), data);
    let pool = Pool::new(Task { node, pair: Arc::clone(&root), what });
    thread::scope(|scope| {
        let work = || {
            let _ending = PanicGuard(&pool);
            let mut own = visitor.own();
            if let Err(error) = Descent::new(visitor, &pool, &root, &mut own).work() {
                pool.end(Some(error));
            }
            visitor.finish(own);
        };
        for number in 1..threads.max(1) {
            // If a thread cannot be started, the walk is slower and still complete.
            let builder = thread::Builder::new().name(format!("tree-{number}"));
            if builder.spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    pool.outcome()
}

/// Ends the walk if its thread panics, so that the other threads do not wait for ever.
struct PanicGuard<'a, D>(&'a Pool<D>);

impl<D> Drop for PanicGuard<'_, D> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end(None);
        }
    }
}
