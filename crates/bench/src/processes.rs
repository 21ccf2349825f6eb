//! Finds and kills processes that a measured command left behind.

use crate::Error;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_sys::procfs::{self, Stat};

/// Number of searches for processes that start while others are being killed.
const SEARCHES: u32 = 50;

/// Maximum number of searches, 2 ms apart, while no member is found but a process has no
/// environment: inside execve(2) a member has none for a moment. A program that was started with an
/// empty environment never has one.
const CHECKS: u32 = 50;

/// How long a spared program may take to end by itself.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What distinguishes the processes of one benchmark from all others.
pub(crate) struct OwnProcesses {
    /// An entry of the environment that all members inherit, "NAME=value". It identifies a
    /// daemon that is no longer a descendant.
    pub(crate) mark: String,
    /// A program, as device and inode of its file, that may end by itself after its commands
    /// were killed: synconce then clears its marker.
    pub(crate) spared: Option<(u64, u64)>,
}

impl OwnProcesses {
    /// Kills a process with all its descendants, and every other process with the mark; gives
    /// up on processes that no signal ends.
    pub(crate) fn end(&self, top: Option<Pid>) {
        let (start, mut checks) = (Instant::now(), 0);
        loop {
            let (members, unknown) = self.members(top);
            if members.is_empty() && (checks == CHECKS || !unknown) {
                return;
            }
            checks += u32::from(members.is_empty());
            if start.elapsed() > TIMEOUT {
                return kill(members);
            }
            kill(members.into_iter().filter(|pid| !self.is_spared(*pid)).collect());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns every live member, parents before children, and whether there may be more.
    fn members(&self, top: Option<Pid>) -> (Vec<Pid>, bool) {
        let parents = all();
        let mut found: Vec<Pid> = top.into_iter().filter(|pid| parents.contains_key(pid)).collect();
        add_descendants(&mut found, &parents);
        let mut unknown = false;
        for pid in parents.keys().filter(|pid| !found.contains(pid)).copied().collect::<Vec<_>>() {
            match self.marks(pid) {
                Some(true) => found.push(pid),
                Some(false) => {}
                None => unknown = true,
            }
        }
        (found, unknown)
    }

    /// Whether `pid` has the mark; `None` while `pid` is inside execve(2) and its new
    /// environment is not in place yet. A kernel thread has no program.
    fn marks(&self, pid: Pid) -> Option<bool> {
        let path = |name: &str| format!("/proc/{}/{name}", pid.as_raw_pid());
        let environment = std::fs::read(path("environ")).unwrap_or_default();
        if environment.is_empty() && std::fs::read_link(path("exe")).is_ok() {
            return None;
        }
        let mut entries = environment.split(|byte| *byte == 0);
        Some(entries.any(|entry| entry == self.mark.as_bytes()))
    }

    fn is_spared(&self, pid: Pid) -> bool {
        let program = std::fs::metadata(format!("/proc/{}/exe", pid.as_raw_pid()));
        let file = program.ok().map(|metadata| (metadata.dev(), metadata.ino()));
        file.is_some() && file == self.spared
    }
}

/// Kills children before parents, so that no child is reparented.
fn kill(parents_first: Vec<Pid>) {
    for pid in parents_first.into_iter().rev() {
        // The process may have exited already.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Kills every process whose root is the directory, and returns how many there were: a service
/// started by a package would keep the mounts busy.
pub(crate) fn kill_rooted(root: &Path) -> usize {
    let mut ended = 0;
    for _ in 0..SEARCHES {
        let inside: Vec<Pid> = all()
            .into_keys()
            .filter(|pid| {
                std::fs::read_link(format!("/proc/{}/root", pid.as_raw_pid()))
                    .is_ok_and(|theirs| theirs == root)
            })
            .collect();
        if inside.is_empty() {
            break;
        }
        for pid in inside {
            ended += usize::from(kill_process(pid, Signal::KILL).is_ok());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    ended
}

/// Adds the live descendants of the found processes, parents before children.
fn add_descendants(found: &mut Vec<Pid>, parents: &HashMap<Pid, Option<Pid>>) {
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = parents.iter().filter(|(_, above)| **above == Some(parent));
        found.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
}

/// Returns every process that is not a zombie, with its parent.
fn all() -> HashMap<Pid, Option<Pid>> {
    let to_pid = |pid: u32| Pid::from_raw(pid.cast_signed());
    let living = procfs::pids().filter_map(|pid| {
        let stat = Stat::read(pid)?;
        (stat.state()? != 'Z').then_some((to_pid(pid)?, to_pid(stat.parent()?)))
    });
    living.collect()
}

/// Returns user and system time of a process and of the children that it has reaped.
pub(crate) fn times(pid: Pid) -> Result<(Duration, Duration), Error> {
    let stat = Stat::read(pid.as_raw_pid().cast_unsigned());
    let per_second = rustix::param::clock_ticks_per_second();
    let time = |own, childrens| {
        let ticks: u64 =
            stat.as_ref()?.field::<u64>(own)? + stat.as_ref()?.field::<u64>(childrens)?;
        Some(Duration::from_millis(ticks * 1000 / per_second))
    };
    let path = format!("/proc/{pid}/stat");
    time(14, 16).zip(time(15, 17)).ok_or(ErrorKind::NotFound).map_err(Error::io("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a script with a new mark, and waits until `members` processes have the mark.
    fn start(script: &str, members: usize) -> (OwnProcesses, std::process::Child) {
        let value = format!("{}-{}", std::process::id(), fastrand::u64(..));
        let own = OwnProcesses { mark: format!("SYNCONCE_BENCH_TEST={value}"), spared: None };
        let child = std::process::Command::new("sh")
            .args(["-c", script])
            .env("SYNCONCE_BENCH_TEST", value)
            .spawn()
            .expect("sh runs");
        while own.members(None).0.len() < members {
            std::thread::sleep(Duration::from_millis(5));
        }
        (own, child)
    }

    fn end(own: &OwnProcesses, mut child: std::process::Child) {
        own.end(Some(Pid::from_child(&child)));
        child.wait().expect("the child can be waited for");
        assert_eq!(own.members(None).0, []);
    }

    #[test]
    fn a_tree_is_ended_down_to_the_last_grandchild() {
        let (own, child) = start("env -i sh -c 'sleep 100 & sleep 100' & sleep 100 & wait", 2);
        while own.members(Some(Pid::from_child(&child))).0.len() < 5 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let below = own.members(Some(Pid::from_child(&child))).0;
        end(&own, child);
        let alive = all();
        assert!(below.iter().all(|pid| !alive.contains_key(pid)));
    }

    #[test]
    fn a_daemon_that_left_its_parents_behind_is_ended_with_the_others() {
        let (own, child) = start("setsid sh -c 'setsid sleep 100 & exit' & sleep 100", 3);
        end(&own, child);
    }

    #[test]
    fn a_spared_program_ends_by_itself_once_its_command_is_gone() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let trace = dir.path().join("trace");
        let shell = std::fs::metadata("/bin/sh").expect("there is a shell");
        let script = format!("sleep 100; echo cleared > {}", trace.display());
        let (mut own, child) = start(&script, 2);
        own.spared = Some((shell.dev(), shell.ino()));
        end(&own, child);
        let text = std::fs::read_to_string(&trace).expect("it was left to do this");
        assert_eq!(text, "cleared\n");
    }
}
