//! A command whose syncs are real although the run holds those of others.

use crate::frontend::pass;
use crate::launching;
use crate::options::RunOptions;
use crate::process::job;
use crate::report::protocol::{Ending, Message, Summary, receive, send};
use crate::report::run_error::RunError;
use crate::request::held::{Request, is_in_step, outer};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Signal;
use std::ffi::{CStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use synconce_sys::process::{self, ChildChange, Side, WaitFor, Whose};
use synconce_sys::seccomp::Outer;
use synconce_sys::signals::{SignalReader, SignalSet, passed_on};
use synconce_sys::{launch, origin, reason};

/// The name of the process that stays as long as descendants of the command, as `ps` shows it.
const SUBREAPER: &CStr = c"synconce-real";

/// Why the command does not run with real syncs.
#[derive(Debug)]
pub enum RealError {
    /// The run is sealed: its filter drops the syncs of every process.
    Sealed,
    /// The container engine holds this build step.
    BuildStep,
    /// A step of the set-up failed.
    SetUp(RunError),
    /// The command could not be executed.
    Exec(io::Error),
    /// The command's parent was killed, and the command is no child of this process.
    Lost,
}

impl fmt::Display for RealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sealed => f.write_str(
                "cannot make syncs real: this run is sealed, and its filter cannot be lifted",
            ),
            Self::BuildStep => f.write_str(
                "cannot make syncs real: this build step is held, and its filter cannot be lifted",
            ),
            Self::SetUp(error) => error.fmt(f),
            Self::Exec(error) => write!(f, "cannot execute the command: {}", reason(error)),
            Self::Lost => f.write_str(
                "cannot find out how the command ended: its parent, synconce-real, was killed",
            ),
        }
    }
}

/// Runs `command` with real syncs, and returns how it ended. Outside a run executes `command`
/// in this process, whose syncs are real.
///
/// The command's parent is a process of its own, a subreaper: it becomes the parent of the
/// command's orphans, and stays until the last of them has ended. So at any time the
/// supervisor finds that they descend from a process with real syncs, also if this process is
/// killed.
///
/// The process must have one thread.
///
/// # Errors
/// The command did not start, or its exit status is unknown.
pub fn run_real(command: &[OsString]) -> Result<Ending, RealError> {
    origin::forget_runtime_stdio();
    if make_syncs_real()? { start(command) } else { Err(RealError::Exec(execute(command))) }
}

/// Makes the syncs of this process and its descendants real, if a run holds them. Returns
/// whether a run held them.
///
/// # Errors
/// The run is sealed, this process is in a held build step, or the supervisor refused.
pub fn make_syncs_real() -> Result<bool, RealError> {
    refuse_if_sealed()?;
    if outer() == Outer::Supervised { ask().map_err(RealError::SetUp) } else { Ok(false) }
}

/// Refuses in a sealed run, where [`make_syncs_real`] would fail.
///
/// # Errors
/// The run is sealed, or this process is in a held build step.
pub fn refuse_if_sealed() -> Result<(), RealError> {
    match outer() {
        Outer::Sealed if is_in_step() => Err(RealError::BuildStep),
        Outer::Sealed => Err(RealError::Sealed),
        _ => Ok(()),
    }
}

fn execute(words: &[OsString]) -> io::Error {
    let options = RunOptions { command: words.to_vec(), ..RunOptions::default() };
    match launching::command(&options, None) {
        Ok(command) => launch::execute_in_place(&command),
        Err(error) => error,
    }
}

/// Asks for real syncs of this process and its descendants. Returns `false` if the command of
/// the run has ended meanwhile, so that every sync is real.
fn ask() -> Result<bool, RunError> {
    match Request::Real.make() {
        Ok(()) => Ok(true),
        Err(Errno::BADF) => Ok(false),
        Err(errno) => {
            Err(RunError::set_up("cannot ask the supervisor for real syncs", &errno.into()))
        }
    }
}

fn start(words: &[OsString]) -> Result<Ending, RealError> {
    let cannot =
        |act: &'static str| move |error: io::Error| RealError::SetUp(RunError::set_up(act, &error));
    // If the subreaper is killed, the command becomes a child of this process.
    process::adopt_orphans().map_err(cannot("cannot become a subreaper"))?;
    let set = SignalSet::from_numbers(&passed_on());
    let mask = set.block();
    let reader = SignalReader::new(&set).map_err(cannot("cannot read signals"))?;
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (ours, theirs) =
        pair.map_err(io::Error::from).map_err(cannot("cannot make a pair of sockets"))?;
    match process::fork().map_err(cannot("cannot make a process"))? {
        Side::Child => {
            drop((ours, reader));
            if let Err(error) = attend(words, mask, &theirs) {
                let _ = send(&theirs, &Message::Failed(error));
            }
            process::exit_now(0)
        }
        Side::Parent(subreaper) => {
            drop(theirs);
            // A pipe must close when the command's copies close.
            process::give_up_inherited(Some(rustix::stdio::stderr()));
            watch(&ours, &reader, subreaper)
        }
    }
}

/// Starts the command, reports its stops and its end to `caller`, and reaps orphans until no
/// descendant is left.
fn attend(words: &[OsString], mask: SignalSet, caller: &OwnedFd) -> Result<(), RunError> {
    let cannot = |act: &'static str| move |error| RunError::set_up(act, &error);
    process::set_name(SUBREAPER);
    process::adopt_orphans().map_err(cannot("cannot become a subreaper"))?;
    // The processes below this one stay real if the caller is killed.
    ask()?;
    let command = match process::fork().map_err(cannot("cannot make a process"))? {
        Side::Child => {
            // The command is registered, too, so that it stays real if its parent is killed.
            let _ = ask();
            // The parent can be killed at any time, and the caller must know the command even
            // then. A caller that was killed gets no messages.
            let _ = send(caller, &Message::Started { pid: std::process::id() });
            mask.set();
            let errno = execute(words).raw_os_error().unwrap_or(0);
            // The caller has the command's name, which can be too long for a message.
            let failed = RunError::Exec { command: String::new(), errno };
            let _ = send(caller, &Message::Failed(failed));
            process::exit_now(process::FAILED)
        }
        Side::Parent(pid) => pid,
    };
    process::leave_session();
    let any = WaitFor { ends: true, stops: true, block: true, peek: true, ..WaitFor::default() };
    while let Ok(Some((child, change))) = process::wait(Whose::Any, any) {
        let end = ending(change);
        // The end is reported before the command is reaped: the exit status of a reaped command
        // is lost if this process is killed.
        if child == command {
            let _ = match (change, end) {
                (_, Some(end)) => send(caller, &Message::Ended(end)),
                (ChildChange::Stopped(signal), _) => send(caller, &Message::Stopped(signal)),
                _ => Ok(()),
            };
        }
        let same = WaitFor { ends: end.is_some(), stops: end.is_none(), ..WaitFor::default() };
        let _ = process::wait(Whose::Id(child), same);
        if child == command && end.is_some() {
            let ends = WaitFor { ends: true, peek: true, ..WaitFor::default() };
            let stays = process::wait(Whose::Any, ends).is_ok();
            let summary = Summary { end, stays, ..Summary::default() };
            let _ = send(caller, &Message::Done(Box::new(summary)));
        }
    }
    Ok(())
}

fn ending(change: ChildChange) -> Option<Ending> {
    match change {
        ChildChange::Exited(code) => Some(Ending::Exited(code)),
        ChildChange::Killed(signal) => Some(Ending::Killed(signal)),
        _ => None,
    }
}

/// Passes signals on, and stops together with the command, until `subreaper` reports the end.
fn watch(socket: &OwnedFd, reader: &SignalReader, subreaper: u32) -> Result<Ending, RealError> {
    let end_of = |pid| {
        let ends = WaitFor { ends: true, block: true, ..WaitFor::default() };
        process::wait(Whose::Id(pid), ends).ok().flatten().and_then(|(_, change)| ending(change))
    };
    // Signals wait in `reader` until the command's id is known.
    let (mut command, mut end) = (None, None);
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(reader, PollFlags::IN)];
        // EINTR only repeats the loop.
        let _ = rustix::event::poll(&mut fds[..1 + usize::from(command.is_some())], None);
        let [message, signal] = fds.map(|fd| !fd.revents().is_empty());
        if signal && let Some(pid) = command {
            pass_all(reader, pid, None);
        }
        if !message {
            continue;
        }
        match receive(socket) {
            Ok(Some(Message::Started { pid })) => command = Some(pid),
            Ok(Some(Message::Stopped(signal))) => {
                if let Some(pid) = command.filter(|pid| job::stop_with(*pid, signal)) {
                    // The SIGCONT that continued this process; passed on, it would undo the
                    // command's next stop.
                    pass_all(reader, pid, Some(Signal::CONT));
                }
            }
            Ok(Some(Message::Ended(ending))) => (command, end) = (None, Some(ending)),
            Ok(Some(Message::Done(summary))) => {
                if !summary.stays {
                    // Reaping adds the command's processor time to this process's, as time(1)
                    // expects.
                    end_of(subreaper);
                }
                return summary.end.ok_or(RealError::Lost);
            }
            Ok(Some(Message::Failed(RunError::Exec { errno, .. }))) => {
                return Err(RealError::Exec(io::Error::from_raw_os_error(errno)));
            }
            Ok(Some(Message::Failed(error))) => return Err(RealError::SetUp(error)),
            // The subreaper was killed. The kernel closes its sockets before it gives its children
            // to this process. Once the end of the subreaper can be waited for, this process has
            // them (do_exit, kernel/exit.c).
            Ok(None) => {
                end_of(subreaper);
                return end.or_else(|| command.and_then(end_of)).ok_or(RealError::Lost);
            }
            Ok(Some(_)) => {}
            Err(error) => {
                let act = "cannot receive from the command's parent, synconce-real";
                return Err(RealError::SetUp(RunError::set_up(act, &error)));
            }
        }
    }
}

/// Passes the pending signals on to `command`, except `known`.
fn pass_all(reader: &SignalReader, command: u32, known: Option<Signal>) {
    while let Some(received) = reader.next() {
        if known.is_none_or(|known| known.as_raw() != received.signal) {
            pass(&received, command);
        }
    }
}
