//! The processes whose syncs are real: those that `synconce real` started, and their descendants,
//! and those that read a disk below its file system.
//!
//! A process is known by its id and the time at which it began, because ids are reused. What a
//! caller descends from is looked up in /proc once for each thread.

use crate::process::process_tree::{began, exists, lineage, proc_is_ours, process_of};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often a look-up is repeated if a process ends while it is looked up.
const TRIES: usize = 8;
/// The most threads that are remembered.
const MOST: usize = 4096;

/// Processes, each with all its descendants.
#[derive(Debug, Default)]
pub(crate) struct RealTrees {
    /// Whether there is any tree; most runs have none.
    any: AtomicBool,
    /// Whether the syncs of every process are real, because /proc is of another pid namespace and
    /// shows no descent. An extra sync is safe.
    all: AtomicBool,
    /// Whether there is any reader.
    any_reader: AtomicBool,
    state: Mutex<RealState>,
}

#[derive(Debug, Default)]
struct RealState {
    /// The roots of the trees, and when each began.
    roots: HashSet<(u32, u64)>,
    /// Processes that read a disk below its file system, without their descendants, and when each
    /// began.
    readers: HashSet<(u32, u64)>,
    /// Threads that were looked up, when each began, and whether it is in a tree.
    known: HashMap<u32, (u64, bool)>,
}

impl RealTrees {
    fn lock(&self) -> MutexGuard<'_, RealState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the process of `thread`. Returns `false` if /proc does not show the process.
    pub(crate) fn add(&self, thread: u32) -> bool {
        if !proc_is_ours() {
            self.all.store(true, Relaxed);
            return true;
        }
        let root = identify(thread);
        self.change(|state| state.roots.extend(root));
        root.is_some()
    }

    /// Adds the process of `thread` as a reader of a disk, if /proc shows the process.
    pub(crate) fn add_reader(&self, thread: u32) {
        let Some(reader) = proc_is_ours().then(|| identify(thread)).flatten() else { return };
        let mut state = self.lock();
        state.readers.retain(|(pid, at)| began(*pid) == Some(*at));
        state.readers.insert(reader);
        self.any_reader.store(true, Relaxed);
    }

    /// Whether `thread` belongs to a reader of a disk.
    pub(crate) fn is_reader(&self, thread: u32) -> bool {
        if !self.any_reader.load(Relaxed) {
            return false;
        }
        let mut state = self.lock();
        // Readers end soon. Without one a call needs no look into /proc.
        state.readers.retain(|(pid, _)| exists(*pid));
        self.any_reader.store(!state.readers.is_empty(), Relaxed);
        !state.readers.is_empty()
            && identify(thread).is_some_and(|process| state.readers.contains(&process))
    }

    /// Whether `thread` belongs to a process of a tree.
    pub(crate) fn has(&self, thread: u32) -> bool {
        if self.all.load(Relaxed) {
            return true;
        }
        if !self.any.load(Relaxed) {
            return false;
        }
        // /proc may hide a caller of another user. An extra sync is safe.
        let Some(began) = began(thread) else { return true };
        let mut state = self.lock();
        if let Some((_, is_real)) = state.known.get(&thread).filter(|known| known.0 == began) {
            return *is_real;
        }
        let is_real = process_of(thread).is_some_and(|process| state.descends(process));
        if state.known.len() >= MOST {
            state.known.clear();
        }
        state.known.insert(thread, (began, is_real));
        is_real
    }

    /// Changes the trees, and forgets those that have ended and what was looked up before.
    fn change(&self, change: impl FnOnce(&mut RealState)) {
        let mut state = self.lock();
        change(&mut state);
        state.roots.retain(|(pid, at)| began(*pid) == Some(*at));
        state.known.clear();
        self.any.store(!state.roots.is_empty(), Relaxed);
    }
}

/// Returns the process of `thread`, and when the process began.
fn identify(thread: u32) -> Option<(u32, u64)> {
    let process = process_of(thread)?;
    Some((process, began(process)?))
}

impl RealState {
    fn descends(&self, process: u32) -> bool {
        // The parent of an orphan changes while it is looked up. /proc may hide an ancestor.
        (0..TRIES).find_map(|_| self.walk(process)).unwrap_or(true)
    }

    /// Returns whether `pid` or an ancestor is a root; `None` if /proc does not show one of them.
    fn walk(&self, mut pid: u32) -> Option<bool> {
        let supervisor = std::process::id();
        while pid != 0 && pid != supervisor {
            let (parent, began) = lineage(pid)?;
            if self.roots.contains(&(pid, began)) {
                return Some(true);
            }
            pid = parent;
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::process_tree::Snapshot;
    use std::process::{Child, Command, Stdio};

    /// Starts a shell that waits for its standard input, with a child of its own.
    fn shell() -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 100 & read line; kill $!"]).stdin(Stdio::piped());
        shell.spawn().unwrap()
    }

    fn end(mut shell: Child) {
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    /// Waits for the child of `pid`, and returns it.
    fn child(pid: u32) -> u32 {
        loop {
            let family = Snapshot::now().family(vec![pid]);
            if let Some(child) = family.iter().find(|one| one.name == "sleep") {
                return child.pid;
            }
        }
    }

    #[test]
    fn a_process_and_its_descendants_are_real_and_no_others() {
        let (one, other) = (shell(), shell());
        let below = [child(one.id()), child(other.id())];
        let trees = RealTrees::default();
        assert!(!trees.has(one.id()));
        assert!(trees.add(one.id()));
        // Asked twice: the second answer is remembered.
        for _ in 0..2 {
            let real = [one.id(), below[0], other.id(), below[1], std::process::id()];
            assert_eq!(real.map(|pid| trees.has(pid)), [true, true, false, false, false]);
        }
        end(one);
        end(other);
    }

    #[test]
    fn a_reader_of_a_disk_is_real_without_its_descendants() {
        let shell = shell();
        let (trees, below) = (RealTrees::default(), child(shell.id()));
        assert!(!trees.is_reader(shell.id()));
        trees.add_reader(shell.id());
        assert_eq!([shell.id(), below].map(|pid| trees.is_reader(pid)), [true, false]);
        end(shell);
        assert!(!trees.is_reader(std::process::id()));
        assert!(!trees.any_reader.load(Relaxed), "a reader that has ended is forgotten");
    }

    #[test]
    fn an_id_that_is_reused_is_not_real() {
        let shell = shell();
        let trees = RealTrees::default();
        let began = began(shell.id()).unwrap();
        for (at, is_real) in [(began - 1, false), (began, true)] {
            let mut state = RealState::default();
            state.roots.insert((shell.id(), at));
            assert_eq!(state.descends(shell.id()), is_real);
        }
        assert!(trees.add(shell.id()));
        let known = [(shell.id(), (began - 1, false))];
        trees.lock().known.extend(known);
        assert!(trees.has(shell.id()), "what was looked up was about another process");
        end(shell);
        assert!(!trees.add(u32::MAX), "no such process");
        assert!(!trees.any.load(Relaxed), "a tree that has ended is forgotten");
    }
}
