//! The process of a daemon, and what it lacks.

use crate::containerd;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use synconce_sys::procfs::{self, Stat};

/// The resolution of a process's start time, and of a file's time stamps.
pub(super) const SLACK: Duration = Duration::from_millis(50);

/// What a running daemon lacks.
#[derive(Debug)]
pub(crate) enum Lack {
    /// A part of the set-up, which it has after a restart.
    Old(String),
    /// As `Old`, and it has to be restarted with this variable, because no systemd sets it.
    Variable(String, String),
    /// It is not known whether the daemon has the set-up, or it never will: with what mends that.
    Unknown(String),
}

/// A process of a daemon.
#[derive(Debug)]
pub(crate) struct DaemonProcess {
    pub(super) pid: u32,
}

/// Whose daemon a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DaemonOwner {
    /// That of the system: root's, in this pid namespace.
    System,
    /// That of a container: in another pid namespace.
    Container,
    /// That of a user, in this pid namespace: rootless.
    User(u32),
}

impl DaemonProcess {
    /// Returns root's processes of the program `name` in this pid namespace.
    pub(super) fn find(name: &str) -> impl Iterator<Item = Self> {
        let all = Self::find_all(name);
        all.filter_map(|(process, owner)| (owner == DaemonOwner::System).then_some(process))
    }

    /// Returns all processes of the program `name`, each with its owner.
    pub(super) fn find_all(name: &str) -> impl Iterator<Item = (Self, DaemonOwner)> {
        let ours = fs::read_link("/proc/self/ns/pid").ok();
        procfs::pids().map(|pid| Self { pid }).filter_map(move |process| {
            procfs::process_name(process.pid).ok().filter(|own| own == name)?;
            // A process that has ended stays listed until its parent reaps it.
            Stat::read(process.pid)?.state().filter(|state| *state != 'Z')?;
            let user = fs::metadata(process.file("")).ok()?.uid();
            // Another user's process shows no namespace.
            let is_here = fs::read_link(process.file("ns/pid")).map_or(true, |it| Some(it) == ours);
            let owner = match user {
                _ if !is_here => DaemonOwner::Container,
                0 => DaemonOwner::System,
                user => DaemonOwner::User(user),
            };
            Some((process, owner))
        })
    }

    /// Returns the configuration file of a containerd, by its command line.
    pub(crate) fn configuration(&self) -> PathBuf {
        let mut given = self.values(&containerd::FLAGS).into_iter();
        given.next().map_or_else(|| containerd::CONFIGURATION.into(), PathBuf::from)
    }

    /// Returns the values of the flags `names` on its command line.
    pub(crate) fn values(&self, names: &[&str]) -> Vec<String> {
        let words = self.words("cmdline").unwrap_or_default();
        let value = |(at, word): (usize, &String)| {
            names.iter().find_map(|flag| match word.strip_prefix(flag)? {
                "" => words.get(at + 1).cloned(),
                rest => rest.strip_prefix('=').map(str::to_owned),
            })
        };
        words.iter().enumerate().filter_map(value).collect()
    }

    /// Returns the path of its program.
    pub(crate) fn program(&self) -> Option<PathBuf> {
        fs::read_link(self.file("exe")).ok()
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string()).join(name)
    }

    /// Returns the words of `cmdline` or `environ` (proc(5)); `None` if they cannot be read.
    pub(crate) fn words(&self, file: &str) -> Option<Vec<String>> {
        procfs::words(self.pid, file).ok()
    }

    /// Returns when the process started, by the clock of now.
    pub(super) fn start(&self) -> Option<SystemTime> {
        let ticks = Stat::read(self.pid)?.began()?;
        let since_boot =
            Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
        let uptime = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(UNIX_EPOCH + now.checked_sub(uptime.checked_sub(since_boot)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_no_daemon() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let is_found = || DaemonProcess::find("sleep").any(|process| process.pid == child.id());
        assert!(is_found());
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        // It is not waited for, and so stays a zombie.
        let is_zombie = || Stat::read(child.id()).and_then(|stat| stat.state()) == Some('Z');
        synconce_testkit::harness::eventually("a zombie", is_zombie);
        assert!(!is_found());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_starts_after_what_was_written_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = DaemonProcess { pid: child.id() }.start();
        fs::write(&file, "again").unwrap();
        let after = fs::metadata(&file).unwrap().modified().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let start = start.expect("a running process");
        assert!(before < start + SLACK && start < after + SLACK, "{before:?} {start:?} {after:?}");
    }
}
