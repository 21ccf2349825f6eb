//! Commands that leave no process behind, for tests whose effects cannot be undone.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, pidfd_open,
    waitid,
};
use synconce_sys::procfs::Stat;

use crate::error::Context;
use crate::{Error, Result};

/// The result of a command that ended by itself.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
    /// Time from the start to the end.
    pub elapsed: Duration,
    /// Time on the processors, of the command and of all descendants that were waited for.
    pub processor: Duration,
}

/// Runs a command to its end, in a process group that is then killed. The command's stdin is
/// empty.
///
/// # Errors
/// The command could not be started, or it took longer than `limit`; the text contains its
/// output until then.
pub fn run(command: &mut Command, limit: Duration) -> Result<Finished> {
    let group = Group::spawn(command)?;
    let Some(status) = group.wait(limit)? else {
        let (stdout, stderr) = (group.stdout()?, group.stderr()?);
        return Err(Error::Program {
            command: format!("{command:?}"),
            outcome: format!("it took longer than {limit:?}\nstdout: {stdout}\nstderr: {stderr}"),
        });
    };
    let elapsed = group.started.elapsed();
    let processor = group.processor_time();
    Ok(Finished { status, stdout: group.stdout()?, stderr: group.stderr()?, elapsed, processor })
}

/// A command in its own process group. Dropping the value kills the group: the command and
/// every descendant that has not left the group by setsid(2) or setpgid(2).
#[derive(Debug)]
pub struct Group {
    child: Child,
    pid: Pid,
    started: Instant,
    stdout: File,
    stderr: File,
}

impl Group {
    /// Starts a command with an empty stdin. Its output goes to files, so that a descendant
    /// that keeps them open cannot block the reader, and no output is too long.
    ///
    /// # Errors
    /// The command could not be started.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_owned();
        let capture = || {
            let file = tempfile::tempfile()?;
            Ok::<_, std::io::Error>((file.try_clone()?, file))
        };
        let (stdout, child_stdout) = capture().context("capture stdout of", &program)?;
        let (stderr, child_stderr) = capture().context("capture stderr of", &program)?;
        command.stdin(Stdio::null()).stdout(child_stdout).stderr(child_stderr).process_group(0);
        let started = Instant::now();
        let child = command.spawn().context("start", &program)?;
        let pid = Pid::from_child(&child);
        // Otherwise this process would keep the files open for as long as `command` exists.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child, pid, started, stdout, stderr })
    }

    /// Returns the pid of the command.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the command itself; returns `None` if it still runs after `limit`.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&self, limit: Duration) -> Result<Option<ExitStatus>> {
        // The process is not reaped before the drop: until then its pid, which is also the
        // group's id, cannot be reused.
        let pidfd =
            pidfd_open(self.pid, PidfdFlags::empty()).context("open the process", "/proc")?;
        let limit = Timespec::try_from(limit).ok();
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        let ready = rustix::io::retry_on_intr(|| poll(&mut fds, limit.as_ref()))
            .context("wait in", "/proc")?;
        if ready == 0 {
            return Ok(None);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid), options).context("wait in", "/proc")?;
        Ok(status.as_ref().map(exit_status))
    }

    /// Returns the processor time of the command, which has ended, and of all descendants that
    /// were waited for; zero where /proc cannot be read.
    fn processor_time(&self) -> Duration {
        // A zombie still has its line: utime, stime, cutime and cstime (proc_pid_stat(5)).
        let stat = Stat::read(self.pid());
        let field = |number| stat.as_ref()?.field::<u64>(number);
        let ticks: u64 = (14..=17).filter_map(field).sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// Sends a signal to the whole group.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process_group(self.pid, signal)
            .context("signal the group of", format!("/proc/{}", self.pid()))
    }

    /// Returns what has been written to stdout so far.
    ///
    /// # Errors
    /// The capture cannot be read.
    pub fn stdout(&self) -> Result<String> {
        text(&self.stdout)
    }

    /// Returns what has been written to stderr so far.
    ///
    /// # Errors
    /// The capture cannot be read.
    pub fn stderr(&self) -> Result<String> {
        text(&self.stderr)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

fn exit_status(status: &WaitIdStatus) -> ExitStatus {
    let core = if status.dumped() { 0x80 } else { 0 };
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => ExitStatus::from_raw(signal | core),
        (code, None) => ExitStatus::from_raw(code.unwrap_or_default() << 8),
    }
}

fn text(file: &File) -> Result<String> {
    // Read at explicit positions: the file offset is shared with the command, which must
    // continue where it was.
    let length = file.metadata().context("size", "a capture")?.len();
    let mut bytes =
        vec![
            0;
            usize::try_from(length).map_err(std::io::Error::other).context("read", "a capture")?
        ];
    file.read_exact_at(&mut bytes, 0).context("read", "a capture")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
