//! The notices at the end of a run.

use crate::commit::state::{Closed, Unsynced};
use crate::options::RunOptions;
use crate::process::process_tree::{self, Process, ancestors};
use crate::report::protocol::Notice;
use rustix::process::Pid;
use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};
use synconce_sys::procfs;

/// How long a survivor may take to end before it is named.
const GRACE: Duration = Duration::from_millis(100);

/// Finds notices and returns each of them once.
pub(super) struct Notices {
    /// Whether the filter answered without a supervisor.
    sealed: bool,
    /// Files that were opened without their sync flag.
    unsynced: HashSet<Unsynced>,
    /// Threads in calls without their sync flag.
    unfinished: HashSet<u32>,
    /// Threads with held calls.
    synced: HashSet<u32>,
    io_uring: bool,
    passed_unseen: bool,
    /// Whether no process can outlive the run: the frontend is the init process of its pid
    /// namespace, as in a container, and its exit ends the namespace (pid_namespaces(7)).
    ends_all: bool,
    named: HashSet<u32>,
}

impl Notices {
    /// Takes from `closed` what the notices are about.
    pub(super) fn new(options: &RunOptions, sealed: bool, closed: &mut Closed) -> Self {
        let unfinished = std::mem::take(&mut closed.unfinished);
        let unsynced = std::mem::take(&mut closed.notes.unsynced);
        let io_uring =
            closed.notes.accounts.calls.get("io_uring_setup").is_some_and(|tally| tally.passed > 0)
                || (options.io_uring_pass && sealed);
        let passed_unseen = closed.notes.passed_unseen;
        let ends_all = rustix::process::getppid().is_some_and(Pid::is_init);
        Self {
            sealed,
            unsynced,
            unfinished,
            synced: std::mem::take(&mut closed.notes.synced),
            io_uring,
            passed_unseen,
            ends_all,
            named: HashSet::new(),
        }
    }

    /// Returns the notice about processes that outlive a supervised run. Names only processes that
    /// had a sync held, themselves or by a descendant, and that no other notice has named. A reader
    /// of the command's output, or an agent without files, has had none. Waits for at most
    /// [`GRACE`]: a server that the command stopped may still be ending.
    pub(super) fn survivors(&mut self) -> Option<Notice> {
        // Those of a sealed run are named before the commit.
        if self.ends_all || self.sealed || self.synced.is_empty() {
            return None;
        }
        let end = Instant::now() + GRACE;
        loop {
            let names = self.synced_survivors();
            if names.is_empty() {
                return None;
            }
            if Instant::now() >= end {
                return Some(Notice::Survivors(names));
            }
            thread::sleep(GRACE / 10);
        }
    }

    /// Returns the result of `survivors`. In a sealed run, whose survivors are named, polls for at
    /// most [`GRACE`] until none is left.
    pub(super) fn after_grace(&self, survivors: impl Fn() -> Vec<Process>) -> Vec<Process> {
        let end = Instant::now() + GRACE;
        loop {
            let left = survivors();
            if !self.sealed || self.ends_all || left.is_empty() || Instant::now() >= end {
                return left;
            }
            thread::sleep(GRACE / 10);
        }
    }

    fn synced_survivors(&self) -> Vec<String> {
        let families = process_tree::families(std::process::id()).into_iter();
        let synced = |family: &[Process]| family.iter().any(|it| has_any(it.pid, &self.synced));
        let new = families
            .filter(|(process, family)| !self.named.contains(&process.pid) && synced(family));
        new.map(|(process, _)| process.to_string()).collect()
    }

    /// Returns the notices about a run with these `survivors` that were not returned before.
    pub(super) fn pending(&mut self, survivors: &[Process]) -> Vec<Notice> {
        let Self { sealed, unsynced, unfinished, io_uring, passed_unseen, ends_all, named, .. } =
            self;
        let survivors = if *ends_all { &[] } else { survivors };
        let is_sealed = *sealed;
        let earlier = named.clone();
        // Descendants of a named process are not named, unless they became daemons during the
        // commit.
        let is_new = |pid: u32| {
            let mut above = ancestors(pid).peekable();
            // A process without ancestors has ended.
            let is_alive = above.peek().is_some();
            earlier.is_empty() || is_alive && !above.any(|it| earlier.contains(&it.pid))
        };
        let mut pending = Vec::new();
        let mut name = |notice: fn(Vec<String>) -> Notice, about: &dyn Fn(u32) -> bool| {
            let some = survivors.iter().filter(|process| about(process.pid));
            let new = some.filter(|process| named.insert(process.pid));
            let names: Vec<_> = new.map(ToString::to_string).collect();
            if !names.is_empty() {
                pending.push(notice(names));
            }
        };
        name(Notice::SealedSurvivors, &|pid| is_sealed && is_new(pid));
        name(Notice::UnfinishedCalls, &|pid| has_any(pid, unfinished));
        name(Notice::UnsyncedDescriptors, &|pid| keeps(pid, unsynced));
        if std::mem::take(io_uring) {
            pending.push(Notice::IoUringPassed);
        }
        if std::mem::take(passed_unseen) {
            pending.push(Notice::UnseenPassed);
        }
        pending
    }
}

/// Whether one of `threads` belongs to the process `pid`.
fn has_any(pid: u32, threads: &HashSet<u32>) -> bool {
    !threads.is_empty() && procfs::threads(pid).any(|thread| threads.contains(&thread))
}

/// Whether `pid` has a descriptor of a file in `unsynced` open.
fn keeps(pid: u32, unsynced: &HashSet<Unsynced>) -> bool {
    use std::os::unix::fs::MetadataExt;
    if unsynced.is_empty() {
        return false;
    }
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let files = descriptors.filter_map(|entry| std::fs::metadata(entry.path()).ok());
    files
        .map(|meta| Unsynced { device: meta.dev(), inode: meta.ino() })
        .any(|file| unsynced.contains(&file))
}
