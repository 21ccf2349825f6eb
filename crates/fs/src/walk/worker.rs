//! One thread of a walk: descends into directories and returns.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use rustix::fs::{FileType, SeekFrom, seek};

use super::Error;
use super::names::{self, Names, PieceEnd};
use super::node::{DirFds, Node};
use super::pool::{Pool, Task, TaskEntries};
use super::visitor::{At, Left, Visitor};

/// The number of directories that stay open on each thread: the current one and those above
/// it. Ancestors further up are opened again on the way back. Most trees are less deep.
const OPEN: usize = 24;

/// Reading a directory pauses while this many of its subdirectories are still to visit.
const WAITING: usize = 256;

/// Fewer entries than this are not handed to another thread.
const WORTH: usize = 32;

/// A directory on the stack of this thread.
struct Frame<D> {
    node: Arc<Node<D>>,
    /// None while the directory is closed.
    pair: Option<Arc<DirFds>>,
    /// The parent directory, if it is not the next frame on the stack.
    above: Option<Arc<DirFds>>,
    directories: Names,
    list: List,
}

/// How far a directory's list is read.
#[derive(Clone, Copy)]
enum List {
    /// The read position of the open directory is right.
    Open(u64),
    /// The directory was closed; continue at this position.
    Closed(u64),
    Done,
}

/// One thread's part of a walk.
pub(super) struct Descent<'a, V: Visitor> {
    visitor: &'a V,
    pool: &'a Pool<V::Data>,
    root: &'a Arc<DirFds>,
    own: &'a mut V::Own,
    frames: Vec<Frame<V::Data>>,
    /// The buffer for `getdents64`.
    buffer: Vec<u8>,
    others: Names,
}

impl<'a, V: Visitor> Descent<'a, V> {
    pub fn new(
        visitor: &'a V,
        pool: &'a Pool<V::Data>,
        root: &'a Arc<DirFds>,
        own: &'a mut V::Own,
    ) -> Self {
        let buffer = Vec::with_capacity(names::PIECE);
        Self { visitor, pool, root, own, frames: Vec::new(), buffer, others: Names::default() }
    }

    /// Works on tasks until the walk is over.
    pub fn work(&mut self) -> Result<(), Error> {
        while let Some(Task { node, pair, what }) = self.pool.take() {
            match what {
                TaskEntries::All => self.push(node, pair, None),
                TaskEntries::Below(name) => {
                    if !self.enter(&node, &pair, name, Some(&pair))? {
                        self.release(node, pair, None)?;
                    }
                }
                TaskEntries::Entries(names) => {
                    self.entries(&node, &pair, names)?;
                    self.release(node, pair, None)?;
                }
            }
            self.descend()?;
        }
        Ok(())
    }

    /// Works until all directories on the stack are done.
    fn descend(&mut self) -> Result<(), Error> {
        while let Some(frame) = self.frames.last() {
            if self.pool.is_over() {
                self.frames.clear();
                return Ok(());
            }
            let reads = frame.directories.is_empty() && !matches!(frame.list, List::Done);
            if reads {
                self.read()?;
            }
            if self.pool.wants() {
                self.share();
            }
            let Some(frame) = self.frames.last_mut() else { break };
            if let Some(name) = frame.directories.pop() {
                let (node, pair) = (Arc::clone(&frame.node), self.pair_of_last()?);
                node.acquire();
                if !self.enter(&node, &pair, name, None)? {
                    // The frame itself has a reference, so this reference is not the last.
                    node.release();
                }
            } else if matches!(frame.list, List::Done) {
                self.pop()?;
            }
        }
        Ok(())
    }

    /// Enters a directory. The caller has acquired a reference to the parent.
    fn enter(
        &mut self,
        node: &Arc<Node<V::Data>>,
        pair: &Arc<DirFds>,
        name: CString,
        above: Option<&Arc<DirFds>>,
    ) -> Result<bool, Error> {
        let Some((below, data)) = self.visitor.enter(&At { node, pair }, self.own, &name)? else {
            return Ok(false);
        };
        let node = Node::new(Some(Arc::clone(node)), name, data);
        self.push(node, Arc::new(below), above.cloned());
        Ok(true)
    }

    fn push(&mut self, node: Arc<Node<V::Data>>, pair: Arc<DirFds>, above: Option<Arc<DirFds>>) {
        let (directories, list) = (Names::default(), List::Open(0));
        self.frames.push(Frame { node, pair: Some(pair), above, directories, list });
        if let Some(index) = self.frames.len().checked_sub(OPEN + 1) {
            let frame = &mut self.frames[index];
            if let Some(pair) = frame.pair.take() {
                frame.node.remember(&pair);
            }
            if let List::Open(position) = frame.list {
                frame.list = List::Closed(position);
            }
        }
    }

    /// Reads the directory on top of the stack until there are enough subdirectories to visit.
    fn read(&mut self) -> Result<(), Error> {
        let pair = self.pair_of_last()?;
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let node = Arc::clone(&frame.node);
        let fail = |errno| self.visitor.error("cannot read the directory", &node.path(), errno);
        if let List::Closed(position) = frame.list {
            seek(&pair.first, SeekFrom::Start(position)).map_err(fail)?;
        }
        loop {
            let Some(frame) = self.frames.last_mut() else { return Ok(()) };
            let mut others = std::mem::take(&mut self.others);
            let ended =
                names::read(&pair.first, &mut self.buffer, &mut frame.directories, &mut others);
            others.sort();
            self.others = self.entries_until(&node, &pair, others)?;
            let Some(frame) = self.frames.last_mut() else { return Ok(()) };
            match ended.map_err(fail)? {
                PieceEnd::At(position) => frame.list = List::Open(position),
                PieceEnd::Whole => {
                    frame.list = List::Done;
                    let directories = &mut frame.directories;
                    let mut more = |name: &CStr| {
                        directories.push(name, FileType::Directory, 0);
                    };
                    let at = At { node: &node, pair: &pair };
                    return self.visitor.listed(&at, self.own, &mut more);
                }
            }
            if frame.directories.len() >= WAITING || self.pool.is_over() {
                return Ok(());
            }
        }
    }

    /// Visits the entries of the directory on top of the stack, and returns the emptied list.
    fn entries_until(
        &mut self,
        node: &Arc<Node<V::Data>>,
        pair: &Arc<DirFds>,
        mut names: Names,
    ) -> Result<Names, Error> {
        let at = At { node, pair };
        let mut index = 0;
        while index < names.len() && !self.pool.is_over() {
            let left = names.len() - index;
            if left >= WORTH && self.pool.wants() {
                let what = TaskEntries::Entries(names.split_off(index + left / 2));
                node.acquire();
                self.pool.give(Task { node: Arc::clone(node), pair: Arc::clone(pair), what });
            }
            let (name, kind) = names.get(index);
            if self.visitor.entry(&at, self.own, name, kind)?
                && let Some(frame) = self.frames.last_mut()
            {
                frame.directories.push(name, FileType::Directory, 0);
            }
            index += 1;
        }
        names.clear();
        Ok(names)
    }

    /// Visits entries that another thread has read.
    fn entries(
        &mut self,
        node: &Arc<Node<V::Data>>,
        pair: &Arc<DirFds>,
        names: Names,
    ) -> Result<(), Error> {
        let at = At { node, pair };
        for index in 0..names.len() {
            if self.pool.is_over() {
                return Ok(());
            }
            let (name, kind) = names.get(index);
            if self.visitor.entry(&at, self.own, name, kind)? {
                let what = TaskEntries::Below(name.to_owned());
                node.acquire();
                self.pool.give(Task { node: Arc::clone(node), pair: Arc::clone(pair), what });
            }
        }
        Ok(())
    }

    /// Hands the directory nearest to the root, which is probably the largest, to an idle
    /// thread.
    fn share(&mut self) {
        // The last directory is kept; otherwise a chain of directories would move between
        // threads.
        let waiting: usize = self.frames.iter().map(|frame| frame.directories.len()).sum();
        if waiting < 2 {
            return;
        }
        for frame in &mut self.frames {
            let Some(pair) = &frame.pair else { continue };
            if let Some(name) = frame.directories.pop() {
                frame.node.acquire();
                let (node, pair) = (Arc::clone(&frame.node), Arc::clone(pair));
                return self.pool.give(Task { node, pair, what: TaskEntries::Below(name) });
            }
        }
    }

    /// Returns the directory on top of the stack, and opens it again if it was closed.
    fn pair_of_last(&mut self) -> Result<Arc<DirFds>, Error> {
        let Some(frame) = self.frames.last_mut() else { return Ok(Arc::clone(self.root)) };
        if let Some(pair) = &frame.pair {
            return Ok(Arc::clone(pair));
        }
        let pair = open_again(self.visitor, self.root, &frame.node, None)?;
        frame.pair = Some(Arc::clone(&pair));
        Ok(pair)
    }

    /// Pops the directory on top of the stack, whose entries are all visited or handed over.
    fn pop(&mut self) -> Result<(), Error> {
        let pair = self.pair_of_last()?;
        let Some(Frame { node, mut above, .. }) = self.frames.pop() else { return Ok(()) };
        if let (None, Some(frame)) = (&above, self.frames.last_mut()) {
            if frame.pair.is_none() {
                let opened = open_again(self.visitor, self.root, &frame.node, Some(&pair))?;
                frame.pair = Some(opened);
            }
            above.clone_from(&frame.pair);
        }
        self.release(node, pair, above)
    }

    /// Releases a directory. If this was the last reference, finishes the directory and
    /// releases its parent in turn.
    fn release(
        &mut self,
        mut node: Arc<Node<V::Data>>,
        mut pair: Arc<DirFds>,
        mut above: Option<Arc<DirFds>>,
    ) -> Result<(), Error> {
        loop {
            if !node.has_one_reference() {
                // The thread that finishes the directory may need its identity to open it
                // again.
                node.remember(&pair);
            }
            if !node.release() || self.pool.is_over() {
                return Ok(());
            }
            let upper = match (above.take(), node.parent()) {
                (Some(upper), _) => Some(upper),
                (None, Some(parent)) => {
                    Some(open_again(self.visitor, self.root, parent, Some(&pair))?)
                }
                (None, None) => None,
            };
            let at = At { node: &node, pair: &pair };
            if self.visitor.leave(&at, self.own, upper.as_deref())? == Left::Again {
                node.acquire();
                self.push(node, pair, upper);
                if let Some(frame) = self.frames.last_mut() {
                    frame.list = List::Closed(0);
                }
                return Ok(());
            }
            let (Some(parent), Some(upper)) = (node.parent().cloned(), upper) else {
                self.pool.end(None);
                return Ok(());
            };
            (node, pair) = (parent, upper);
        }
    }
}

/// Opens a closed directory again: by the ".." of a child if there is one, else by the names
/// from the root.
fn open_again<V: Visitor>(
    visitor: &V,
    root: &Arc<DirFds>,
    node: &Node<V::Data>,
    below: Option<&DirFds>,
) -> Result<Arc<DirFds>, Error> {
    if node.parent().is_none() {
        return Ok(Arc::clone(root));
    }
    if let Some(pair) = below.and_then(|below| node.open_from_below(below)) {
        return Ok(Arc::new(pair));
    }
    node.open_from_root(root, |parent, node| visitor.reopen(parent, node).map(Arc::new))
        .map_err(|errno| visitor.error("cannot open again", &node.path(), errno))
}
