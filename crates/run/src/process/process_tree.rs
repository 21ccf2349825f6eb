//! Processes and their descendants, from /proc.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use synconce_sys::procfs::{self, Stat, threads};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`).
    pub name: String,
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// Whether `/proc` shows the processes of this pid namespace by their ids (proc(5)).
pub(crate) fn proc_is_ours() -> bool {
    let this = fs::read_link("/proc/self").ok();
    this.is_some_and(|this| this.to_str() == Some(&std::process::id().to_string()))
}

/// Returns the process to which `thread` belongs.
pub(crate) fn process_of(thread: u32) -> Option<u32> {
    number_in_status(thread, "Tgid:")
}

/// Returns the living descendants of `ancestor`, by id. Omits processes that /proc does not
/// show.
pub fn descendants(ancestor: u32) -> Vec<Process> {
    let mut family = Snapshot::now().family(vec![ancestor]);
    family.retain(|process| process.pid != ancestor);
    family
}

/// Returns the living children of `parent`, by id, each with its descendants. Omits processes
/// that /proc does not show.
pub(crate) fn families(parent: u32) -> Vec<(Process, Vec<Process>)> {
    let snapshot = Snapshot::now();
    let children: BTreeSet<_> = snapshot.children.get(&parent).into_iter().flatten().collect();
    let processes = children.into_iter().filter_map(|pid| snapshot.processes.get(pid));
    processes.map(|process| (process.clone(), snapshot.family(vec![process.pid]))).collect()
}

/// A snapshot of the living processes that /proc shows.
pub(crate) struct Snapshot {
    processes: HashMap<u32, Process>,
    children: HashMap<u32, Vec<u32>>,
}

impl Snapshot {
    pub(crate) fn now() -> Self {
        let (mut processes, mut children) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for (process, parent, state) in procfs::pids().filter_map(status) {
            if state != 'Z' && state != 'X' {
                children.entry(parent).or_default().push(process.pid);
                processes.insert(process.pid, process);
            }
        }
        Self { processes, children }
    }

    /// Returns the processes `open` and their descendants, by id.
    pub(crate) fn family(&self, mut open: Vec<u32>) -> Vec<Process> {
        let mut seen = BTreeSet::new();
        while let Some(pid) = open.pop() {
            if seen.insert(pid) {
                open.extend(self.children.get(&pid).into_iter().flatten());
            }
        }
        seen.iter().filter_map(|pid| self.processes.get(pid)).cloned().collect()
    }
}

/// The name of a supervisor's process, as `ps` shows it.
pub(crate) const SUPERVISOR: &str = "synconce-hold";

/// The job-control state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// The process is stopped, or a debugger stopped it, which looks the same. Also returned
    /// if /proc gives no state.
    Stopped,
    /// A supervisor traces the process for a moment, stopped or not.
    Traced,
    /// The process runs, perhaps only into its stop.
    Runs,
    /// The process has been continued, or has ended.
    GoesOn,
}

/// Returns the job-control state of `pid`.
pub(crate) fn job(pid: u32) -> JobState {
    match state(pid, pid) {
        Some('t') if is_traced_by_us(pid) => JobState::Traced,
        // The process was detached meanwhile, so it has no tracer either.
        Some('t') if !matches!(state(pid, pid), Some('T' | 't')) => JobState::Runs,
        Some('t' | 'T') => JobState::Stopped,
        Some('R') => JobState::Runs,
        // The first thread has exited; the states of the other threads decide.
        Some('Z') if threads(pid).any(|thread| is_thread_stopped(pid, thread)) => JobState::Stopped,
        None if exists(pid) => JobState::Stopped,
        _ => JobState::GoesOn,
    }
}

fn is_thread_stopped(pid: u32, thread: u32) -> bool {
    match state(pid, thread) {
        Some('t') => !is_traced_by_us(thread),
        state => state == Some('T'),
    }
}

/// Whether a process `pid` exists, including a zombie.
pub(crate) fn exists(pid: u32) -> bool {
    let pid = Pid::from_raw(pid.cast_signed());
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Whether `thread` may end the machine by reboot(2), or /proc does not show that. It may not
/// without `CAP_SYS_BOOT`. In a pid namespace of its own the call ends only the namespace
/// (`reboot_pid_ns`, kernel/pid_namespace.c).
pub(crate) fn may_end_machine(thread: u32) -> bool {
    let field = |name| procfs::status_field(thread, name);
    let is_deeper = field("NSpid:").is_some_and(|ids| ids.split_whitespace().count() > 1);
    let rights = field("CapEff:").and_then(|rights| u64::from_str_radix(&rights, 16).ok());
    !is_deeper && rights.is_none_or(|rights| rights & 1 << CAP_SYS_BOOT != 0)
}

/// `CAP_SYS_BOOT` (include/uapi/linux/capability.h).
const CAP_SYS_BOOT: u32 = 22;

/// Returns the state of `thread` of `pid` (proc_pid_stat(5)).
pub(crate) fn state(pid: u32, thread: u32) -> Option<char> {
    Stat::of_thread(pid, thread)?.state()
}

/// The children of this thread, if the kernel lists them.
const CHILDREN: &str = "/proc/thread-self/children";

/// Walks over the living descendants of this process, each before its children. Takes less than
/// [`Snapshot`], which reads all of /proc.
pub(crate) struct Walk {
    open: Vec<u32>,
}

impl Walk {
    /// Returns `None` if the kernel lists no children (`CONFIG_PROC_CHILDREN`).
    pub(crate) fn over_ours() -> Option<Self> {
        // Only this thread is asked: a thread that ends meanwhile has no list.
        if !Path::new(CHILDREN).exists() {
            return None;
        }
        let us = std::process::id();
        let open = threads(us).filter_map(|thread| children(us, thread)).flatten();
        Some(Self { open: open.collect() })
    }
}

impl Iterator for Walk {
    /// A process, and its threads.
    type Item = (u32, Vec<u32>);

    fn next(&mut self) -> Option<Self::Item> {
        let process = self.open.pop()?;
        let threads: Vec<_> = threads(process).collect();
        let children = threads.iter().filter_map(|thread| children(process, *thread));
        self.open.extend(children.flatten());
        Some((process, threads))
    }
}

/// Returns the children that `thread` of `process` has made or adopted (proc(5)).
fn children(process: u32, thread: u32) -> Option<Vec<u32>> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).ok()?;
    Some(list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// Whether a supervisor traces `pid`, for the length of a call.
fn is_traced_by_us(pid: u32) -> bool {
    let tracer = number_in_status(pid, "TracerPid:");
    let process = tracer.and_then(process_of);
    process.and_then(status).is_some_and(|(process, ..)| process.name == SUPERVISOR)
}

fn number_in_status(pid: u32, name: &str) -> Option<u32> {
    procfs::status_field(pid, name)?.parse().ok()
}

/// Returns the living ancestors of `pid`, nearest first.
pub(crate) fn ancestors(pid: u32) -> impl Iterator<Item = Process> {
    let parent_of = |pid| status(pid).map(|(_, parent, _)| parent);
    std::iter::successors(parent_of(pid), move |pid| parent_of(*pid))
        .filter_map(|pid| status(pid).map(|(process, ..)| process))
}

/// Returns when `pid` began, in ticks since the boot (proc_pid_stat(5)).
pub(crate) fn began(pid: u32) -> Option<u64> {
    Stat::read(pid)?.began()
}

/// Returns the parent of `pid`, and when `pid` began. `pid` is a process, or a thread of the
/// process whose parent is returned. The time distinguishes `pid` from a later process with the
/// same id.
pub(crate) fn lineage(pid: u32) -> Option<(u32, u64)> {
    let stat = Stat::read(pid)?;
    Some((stat.parent()?, stat.began()?))
}

/// Returns the current time in ticks since the boot.
pub(crate) fn ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let rate = rustix::param::clock_ticks_per_second();
    let (seconds, nanoseconds) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds * rate + nanoseconds * rate / 1_000_000_000
}

fn status(pid: u32) -> Option<(Process, u32, char)> {
    of_stat(pid, &Stat::read(pid)?)
}

fn of_stat(pid: u32, stat: &Stat) -> Option<(Process, u32, char)> {
    Some((Process { pid, name: stat.name()?.to_owned() }, stat.parent()?, stat.state()?))
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn a_process_began_before_now_and_not_long_ago() {
        let child = std::process::Command::new("sleep").arg("5").spawn();
        let mut child = child.unwrap();
        let (began, now) = (began(child.id()).unwrap(), ticks());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(began <= now && now - began < 1000, "{began} {now}");
    }

    #[test]
    fn a_walk_goes_on_while_threads_of_this_process_end() {
        if !Path::new(CHILDREN).exists() {
            let why = "the kernel lists no children (CONFIG_PROC_CHILDREN)";
            let _ = writeln!(std::io::stderr(), "SKIPPED: a walk over the descendants: {why}");
            return;
        }
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    // A burst, so that a walk lists some that end before it reads them.
                    let threads: Vec<_> = (0..16).map(|_| std::thread::spawn(|| ())).collect();
                    threads.into_iter().for_each(|thread| thread.join().unwrap());
                }
            });
            let failed = (0..2_000).filter(|_| Walk::over_ours().is_none()).count();
            is_done.store(true, Relaxed);
            assert_eq!(failed, 0);
        });
    }
}
