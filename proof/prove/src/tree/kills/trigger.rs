//! Which process is killed, when, and which processes still use the store afterwards.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::Group;

use crate::tree::check::Defect;

/// Calls by which a store changes. A process is killed when it makes one of them.
const CALLS: [&str; 8] =
    ["rename", "renameat2", "mkdir", "fsync", "unlinkat", "syncfs", "flock", "openat"];
/// The largest n for the nth call. Within one verb no call but openat is made more often.
const MOST_CALLS: u64 = 9;
/// Time limit for processes that exit because of a kill.
const ENDING: Duration = Duration::from_secs(20);

/// Which process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KilledProcess {
    /// The process of the command line itself.
    Itself,
    /// Its process group, which does not include the supervisor.
    Group,
    /// The process and all its descendants, one after the other.
    All,
    /// One descendant: the supervisor, the process `tree enter`, or the command.
    Descendant { which: usize },
}

/// What triggers the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// A delay.
    AfterDelay { target: KilledProcess, delay: Duration },
    /// The nth call of this kind.
    AtCall { call: &'static str, nth: u64 },
}

/// The result of an attempt to kill.
pub(super) struct Attempt {
    /// Whether the kill came before the verb ended.
    pub in_time: bool,
    pub fault: Option<Defect>,
}

impl Trigger {
    /// Returns a random trigger for a verb that takes about `span`.
    pub(in crate::tree) fn random(random: &mut fastrand::Rng, span: Duration) -> Self {
        let most = |call| if call == "openat" { 40 } else { MOST_CALLS };
        Self::random_of(&CALLS.map(|call| (call, most(call))), random, span)
    }

    /// Returns a random trigger for a verb that takes about `span`; `calls` are names of calls,
    /// each with the largest n for the nth call.
    pub(crate) fn random_of(
        calls: &[(&'static str, u64)],
        random: &mut fastrand::Rng,
        span: Duration,
    ) -> Self {
        if random.bool() {
            let (call, most) = calls[random.usize(..calls.len())];
            return Self::AtCall { call, nth: random.u64(1..=most) };
        }
        let target = match random.u8(..6) {
            0 | 1 => KilledProcess::Itself,
            2 => KilledProcess::Group,
            3 => KilledProcess::All,
            _ => KilledProcess::Descendant { which: random.usize(..8) },
        };
        Self::AfterDelay { target, delay: span.mul_f64(random.f64()) }
    }

    /// Returns the command to start: for a kill at a call, the command under strace.
    pub(crate) fn traced(&self, command: Command) -> Command {
        let Self::AtCall { call, nth } = self else { return command };
        let mut traced = Command::new("strace");
        // With -D strace is a grandchild, and the process that is started here is the command
        // itself.
        traced.args(["-D", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
        traced.args(["-e", &format!("inject={call}:signal=KILL:when={nth}")]);
        traced.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => traced.env(name, value),
                None => traced.env_remove(name),
            };
        }
        traced
    }

    /// Waits for the delay, and kills. A trigger at a call needs nothing here.
    pub(crate) fn fire(&self, group: &Group) {
        let Self::AfterDelay { target, delay } = self else { return };
        std::thread::sleep(*delay);
        let own = group.pid();
        match target {
            KilledProcess::Itself => kill(own),
            // The group's leader is reaped when `group` is dropped, so its pid cannot be
            // reused yet.
            KilledProcess::Group => drop(group.signal(Signal::KILL)),
            KilledProcess::All => {
                let below = descendants(own);
                kill(own);
                below.into_iter().for_each(kill);
            }
            KilledProcess::Descendant { which } => {
                let below = descendants(own);
                if !below.is_empty() {
                    kill(below[which % below.len()]);
                }
            }
        }
    }

    /// Whether the process ended with a signal or an exit code other than 0.
    pub(crate) fn took_effect(&self, ended: Option<ExitStatus>) -> bool {
        ended.is_none_or(|status| status.signal().is_some() || status.code() != Some(0))
    }
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The process may have exited by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Returns the descendants of `pid`, nearest first.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut above = vec![pid];
    while let Some(pid) = above.pop() {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(path).unwrap_or_default();
        let children: Vec<u32> =
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        found.extend(&children);
        above.extend(children);
    }
    found
}

/// Waits until no process uses `store`; returns the processes that still do at the time limit.
pub(super) fn wait_until_unused(store: &Path) -> Option<String> {
    let end = Instant::now() + patiently(ENDING);
    loop {
        let mut users = users(store);
        users.extend(leases(store));
        if users.is_empty() {
            return None;
        }
        if Instant::now() > end {
            return Some(users.join("; "));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the sessions whose lease is held. The kernel clears an exiting process's command
/// line before it releases the process's locks.
fn leases(store: &Path) -> Vec<String> {
    let mut held = Vec::new();
    for entry in fs::read_dir(store.join("sessions")).into_iter().flatten().flatten() {
        let Ok(directory) = fs::File::open(entry.path()) else { continue };
        if flock(&directory, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            held.push(format!("the lease of {} is held", entry.path().display()));
        }
    }
    held
}

/// Returns the processes that name `store` in their arguments, or have a part of `store`
/// mounted in their own namespace.
fn users(store: &Path) -> Vec<String> {
    let text = store.display().to_string();
    let inner = format!("{}/sessions/", store.file_name().unwrap_or_default().to_string_lossy());
    let own = fs::read_link("/proc/self/ns/mnt").ok();
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.parse::<u32>().is_err() {
            continue;
        }
        let read = |file| {
            String::from_utf8_lossy(&fs::read(path.join(file)).unwrap_or_default()).into_owned()
        };
        let words = read("cmdline").replace('\0', " ");
        if words.contains(&text) {
            users.push(format!("{name} is {words}"));
            continue;
        }
        let is_ours = fs::read_link(path.join("ns/mnt")).ok() == own;
        let mounts = if is_ours { String::new() } else { read("mountinfo") };
        // The mount is listed by its path, or as the root of a bind mount of this disk.
        let has = mounts.lines().find(|line| line.contains(&text) && line.contains(&inner));
        if let Some(line) = has {
            users.push(format!("{name}, {words}has {line}"));
        }
    }
    users
}
