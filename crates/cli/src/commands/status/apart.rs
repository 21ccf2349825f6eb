//! Reads file systems that may not answer, each in a process of its own.
//!
//! A process that gets no answer is abandoned. A thread would keep synconce from ending: a
//! FUSE request that the server has read blocks even a thread that is killed.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process, pidfd_open, setrlimit,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use synconce_sys::process::{Side, WaitFor, Whose, exit_now, fork, give_up_inherited, wait};
use synconce_sys::reason;

/// How long one process may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How long all processes may take together; those that start last still have [`LIMIT`].
const ALL: Duration = Duration::from_secs(10);
/// How long a process may take to end after its answer.
const END_LIMIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How many processes run at a time.
const AT_ONCE: usize = 16;
/// The largest answer of a process, in bytes: more than a user's interrupted runs take.
const LONGEST: u64 = 8 << 20;
/// The memory limit of a process, in bytes.
const MEMORY: u64 = 512 << 20;

/// Calls each of `jobs` in a process of its own; returns their results in order, or why there
/// is none.
pub fn each<T, F>(jobs: Vec<F>) -> Vec<Result<T, String>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce() -> T,
{
    let end = Instant::now() + ALL;
    let mut jobs = jobs.into_iter();
    let mut answers = Vec::new();
    while jobs.len() > 0 && Instant::now() < end {
        answers.extend(at_once(jobs.by_ref().take(AT_ONCE)));
    }
    let late = |_| Err(format!("the others took {} s", ALL.as_secs()));
    answers.extend(jobs.map(late));
    answers
}

/// Calls `job` in a process of its own; returns its result, or why there is none.
pub fn one<T: Serialize + DeserializeOwned>(job: impl FnOnce() -> T) -> Result<T, String> {
    each(vec![job]).remove(0)
}

fn at_once<T, F>(jobs: impl Iterator<Item = F>) -> Vec<Result<T, String>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce() -> T,
{
    let mut asked: Vec<_> = jobs.map(start).collect();
    let end = Instant::now() + LIMIT;
    loop {
        let mut open: Vec<_> = asked.iter_mut().flatten().filter(|one| !one.over).collect();
        let left = end.saturating_duration_since(Instant::now());
        if open.is_empty() || left.is_zero() {
            break;
        }
        let mut fds: Vec<_> =
            open.iter().map(|one| PollFd::new(&one.pipe, PollFlags::IN)).collect();
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        // If a signal interrupts poll(2), the loop repeats the call.
        let _ = poll(&mut fds, Some(&left));
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (one, _) in open.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            one.read();
        }
    }
    asked.into_iter().map(|asked| asked?.end()).collect()
}

/// A child process that calls a closure.
struct Asked {
    pid: u32,
    pipe: File,
    text: Vec<u8>,
    over: bool,
}

fn start<T: Serialize>(job: impl FnOnce() -> T) -> Result<Asked, String> {
    let (pipe, answer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| reason(&error.into()))?;
    match fork().map_err(|error| reason(&error))? {
        Side::Parent(pid) => Ok(Asked { pid, pipe: pipe.into(), text: Vec::new(), over: false }),
        Side::Child => {
            drop(pipe);
            exit_now(answer_with(job, answer))
        }
    }
}

/// Runs in the child: writes the result of `job` to `answer`; returns the exit code.
fn answer_with<T: Serialize>(job: impl FnOnce() -> T, answer: OwnedFd) -> i32 {
    // If this process is abandoned, it must not keep a pipe or a lock of its parent open.
    give_up_inherited(Some(answer.as_fd()));
    let _ = setrlimit(Resource::As, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) });
    let text = serde_json::to_vec(&job()).unwrap_or_default();
    i32::from(File::from(answer).write_all(&text).is_err())
}

impl Asked {
    /// Reads the bytes that are there, without blocking.
    fn read(&mut self) {
        let mut bytes = [0; 64 << 10];
        match self.pipe.read(&mut bytes) {
            Ok(0) => self.over = true,
            Ok(count) => self.text.extend_from_slice(&bytes[..count]),
            Err(error) => self.over = error.kind() != ErrorKind::Interrupted,
        }
        self.over |= self.text.len() as u64 > LONGEST;
    }

    /// Returns the answer; kills the process if it has not ended.
    fn end<T: DeserializeOwned>(self) -> Result<T, String> {
        if let Some(pid) = Pid::from_raw(self.pid.cast_signed()) {
            let _ = kill_process(pid, Signal::KILL);
            if self.over {
                wait_for_end(pid);
            }
        }
        // Does not block: a process that waits for its file system cannot be reaped.
        let _ = wait(Whose::Id(self.pid), WaitFor { ends: true, ..WaitFor::default() });
        match serde_json::from_slice(&self.text) {
            _ if !self.over => Err(format!("no answer within {} s", LIMIT.as_secs())),
            _ if self.text.len() as u64 > LONGEST => Err("there is too much".to_owned()),
            Ok(answer) => Ok(answer),
            Err(_) => Err("the process that looked was killed".to_owned()),
        }
    }
}

/// Waits until the killed process `pid` has ended, at most [`END_LIMIT`]. A process that has
/// answered ends at once. Without the wait the process stays a zombie in a container whose first
/// process reaps no orphans.
///
/// A user can kill a process that reads files of that user. The process then closes its pipe, and
/// may wait for ever to close a file of a FUSE server that does not answer (`fuse_flush`).
fn wait_for_end(pid: Pid) {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    let _ = retry_on_intr(|| poll(&mut fds, Some(&END_LIMIT)));
}
