//! Identifies a process even if its pid is reused.

use std::fs;
use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::time::Duration;
use synconce_sys::procfs::Stat;

/// Identifies a process by pid, start time and boot. A process with a reused pid has another start
/// time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessId {
    boot: String,
    pid: i32,
    /// Clock ticks since boot.
    start: u64,
}

impl ProcessId {
    pub(super) fn current() -> io::Result<Self> {
        Self::from_pid(rustix::process::getpid().as_raw_pid())
    }

    fn from_pid(pid: i32) -> io::Result<Self> {
        let stat = Stat::read(pid.cast_unsigned());
        let living = stat.filter(|stat| !matches!(stat.state(), None | Some('Z' | 'X' | 'x')));
        let start = living.and_then(|stat| stat.began());
        let start = start.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self { boot: boot_id()?, pid, start })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether exactly this process is running. A zombie is not.
    pub(super) fn is_alive(&self) -> bool {
        Self::from_pid(self.pid).is_ok_and(|found| found == *self)
    }

    /// Returns a pidfd of the process, or `None` if the process is gone.
    fn open(&self) -> Option<OwnedFd> {
        let pidfd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Checked after the open, so that the pidfd cannot be of a later process with the same
        // pid.
        self.is_alive().then_some(pidfd)
    }

    /// Waits for the end of the process; returns false if it still runs after `limit`.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        self.open().is_none_or(|pidfd| ended(&pidfd, limit))
    }

    /// Kills the process if it still runs, and waits for its end.
    pub(super) fn kill(&self) {
        if let Some(pidfd) = self.open() {
            // An error means that the process ended by itself.
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            ended(&pidfd, Duration::from_secs(5));
        }
    }
}

fn ended(pidfd: &OwnedFd, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut fds, limit.as_ref())).is_ok_and(|ready| ready > 0)
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patiently;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn this_process_is_alive_and_its_number_with_another_start_is_not() {
        let mine = ProcessId::current().unwrap();
        assert!(mine.is_alive());
        assert!(!ProcessId { start: mine.start + 1, ..mine.clone() }.is_alive());
        assert!(!ProcessId { boot: "an earlier boot".into(), ..mine }.is_alive());
    }

    #[test]
    fn a_process_that_has_ended_and_was_not_waited_for_is_not_alive() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        let ends = Instant::now() + patiently(Duration::from_secs(20));
        while ProcessId::from_pid(pid).is_ok() {
            assert!(Instant::now() < ends, "{pid} is taken for alive");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
    }
}
