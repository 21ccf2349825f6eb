//! A command whose syncs are real although the run holds those of others.

use crate::frontend::{PASSED_ON, pass};
use crate::held::{Request, outer};
use crate::protocol::Ending;
use crate::{job, launching};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use std::ffi::OsString;
use std::fmt;
use std::io;
use synconce_sys::process::{self, Change, Side, WaitFor, Whose};
use synconce_sys::seccomp::Outer;
use synconce_sys::signals::{Reader, Set};
use synconce_sys::{launch, origin, reason};

/// Why the command does not run with real syncs.
#[derive(Debug)]
pub enum RealError {
    /// The run is sealed: its filter drops the syncs of every process.
    Sealed,
    /// A step of the set-up failed.
    SetUp(&'static str, io::Error),
    /// The command could not be executed.
    Exec(io::Error),
}

impl fmt::Display for RealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sealed => f.write_str(
                "cannot make syncs real: this run is sealed, and its filter cannot be lifted",
            ),
            Self::SetUp(act, error) => write!(f, "{act}: {}", reason(error)),
            Self::Exec(error) => write!(f, "cannot execute the command: {}", reason(error)),
        }
    }
}

/// Runs `command` with real syncs, and returns how it ended. Outside a run executes `command`
/// in this process, whose syncs are real.
///
/// This process stays as the parent of the command, and becomes the parent of the command's
/// orphans: so the supervisor finds that they descend from the command.
///
/// The process must have one thread.
///
/// # Errors
/// The command did not start.
pub fn run_real(command: &[OsString]) -> Result<Ending, RealError> {
    origin::forget_runtime_stdio();
    origin::learn_of_children();
    match outer() {
        Outer::None => Err(RealError::Exec(execute(command))),
        Outer::Sealed => Err(RealError::Sealed),
        Outer::Supervised => supervise(command),
    }
}

fn execute(words: &[OsString]) -> io::Error {
    match launching::command(words, None) {
        Ok(command) => launch::execute_in_place(&command),
        Err(error) => error,
    }
}

fn supervise(words: &[OsString]) -> Result<Ending, RealError> {
    let cannot = |act: &'static str| move |error| RealError::SetUp(act, error);
    let ask = || match Request::Real.make() {
        // The command of the run has ended meanwhile, so every sync is real.
        Err(Errno::BADF) => Ok(false),
        asked => asked.map(|()| true).map_err(io::Error::from),
    };
    if !ask().map_err(cannot("cannot ask the supervisor for real syncs"))? {
        return Err(RealError::Exec(execute(words)));
    }
    process::adopt_orphans().map_err(cannot("cannot become a subreaper"))?;
    let watched = PASSED_ON.iter().chain([&Signal::CHILD]).map(|signal| signal.as_raw());
    let set = Set::of(&watched.collect::<Vec<_>>());
    let mask = set.block();
    let reader = Reader::new(&set).map_err(cannot("cannot read signals"))?;
    // The child reports a failed execve(2) here; a successful one closes it.
    let (report, reporter) = io::pipe().map_err(cannot("cannot make a pipe"))?;
    match process::fork().map_err(cannot("cannot make a process"))? {
        Side::Child => {
            drop((reader, report));
            // The command itself is a root too: it stays real if its parent is killed.
            let error = ask().err().unwrap_or_else(|| {
                mask.set();
                execute(words)
            });
            let errno = error.raw_os_error().unwrap_or(0);
            let _ = rustix::io::write(&reporter, &errno.to_ne_bytes());
            process::exit_now(125)
        }
        Side::Parent(pid) => {
            drop(reporter);
            // A pipe must close when the command's copies close.
            process::give_up_inherited(Some(rustix::stdio::stderr()));
            let ending = attend(pid, &reader);
            // The daemons of the command become children of the supervisor.
            let _ = Request::RealEnds.make();
            let mut errno = [0; 4];
            match rustix::io::read(&report, &mut errno) {
                Ok(4) => {
                    Err(RealError::Exec(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))))
                }
                _ => Ok(ending),
            }
        }
    }
}

/// Passes signals on, stops together with the command `pid`, and reaps orphans, until the
/// command has ended.
fn attend(pid: u32, reader: &Reader) -> Ending {
    let changes = WaitFor { ends: true, stops: true, ..WaitFor::default() };
    loop {
        while let Ok(Some((child, change))) = process::wait(Whose::Any, changes) {
            match change {
                Change::Exited(code) if child == pid => return Ending::Exited(code),
                Change::Killed(signal) if child == pid => return Ending::Killed(signal),
                Change::Stopped(signal) if child == pid && job::stop_with(pid, signal) => {
                    // The SIGCONT that continued this process; passed on, it would undo the
                    // command's next stop.
                    pass_all(reader, pid, Some(Signal::CONT));
                }
                _ => {}
            }
        }
        let mut fds = [PollFd::new(reader, PollFlags::IN)];
        // EINTR only repeats the loop.
        let _ = rustix::event::poll(&mut fds, None);
        pass_all(reader, pid, None);
    }
}

/// Passes the pending signals on to `command`, except those of children and `known`.
fn pass_all(reader: &Reader, command: u32, known: Option<Signal>) {
    let skipped = [Some(Signal::CHILD), known];
    while let Some(received) = reader.next() {
        if !skipped.iter().flatten().any(|signal| signal.as_raw() == received.signal) {
            pass(&received, command);
        }
    }
}
