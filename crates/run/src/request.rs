//! What a process asks of a run in flight: a checkpoint here, real syncs in [`real`].

pub(crate) mod held;
pub(crate) mod presence;
pub mod real;
pub(crate) mod runfile;

use crate::commit::directory;
use crate::process::process_tree;
use crate::report::finished::Observer;
use crate::report::protocol::{CommitReport, Message, Summary, receive};
use crate::report::run_error::RunError;
use crate::request::held::{RUN_VARIABLE, Request, is_in_step, outer};
use crate::request::presence::Unreached;
use crate::request::runfile::{Live, Phase, live};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Signal;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use synconce_durable::record::RunRecord;
use synconce_durable::recovery::{self, FoundMarker, MarkerState};
use synconce_durable::standard_paths;
use synconce_filter::HANDSHAKE_FLAGS;
use synconce_sys::procfs;
use synconce_sys::reason;
use synconce_sys::seccomp::{self, Outer};
use synconce_sys::signals::{SignalReader, SignalSet, is_ignored};

/// Why there is no checkpoint, or none yet.
#[derive(Debug)]
pub enum RequestError {
    /// No run of this user is in flight.
    NoRun,
    /// More than one run of this user is in flight.
    Several(Vec<RunRecord>),
    /// No run of this id is in flight.
    NotInFlight(String),
    /// The run of this id was started in another network namespace, where its socket is.
    InOtherNetwork(String),
    /// The supervisor of the run of this id has no socket, or has closed its socket.
    NoSocket(String),
    /// The run belongs to another user.
    OfAnotherUser(String),
    /// The socket of the run belongs to another user than its marker.
    OfTwoUsers {
        /// The run.
        id: String,
        /// The user of the socket.
        socket: u32,
        /// The user of the marker.
        marker: u32,
    },
    /// The supervisor of the sealed run that this process is in cannot be reached.
    OutOfReach,
    /// The container engine holds this build step, which has no commit.
    BuildStep,
    /// A call failed that asks for the checkpoint.
    Call(&'static str, Errno),
    /// The supervisor ended, or made no checkpoint, without a result.
    NoResult,
    /// The run refused.
    Run(RunError),
    /// A signal ended the wait; the checkpoint goes on for these file systems.
    Unfinished(Vec<PathBuf>),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRun => f.write_str("cannot commit: no run of yours is in flight"),
            Self::Several(_) => f.write_str("cannot choose a run: several of yours are in flight"),
            Self::NotInFlight(id) => write!(f, "cannot commit {id}: no such run is in flight"),
            Self::InOtherNetwork(id) => write!(
                f,
                "cannot commit {id}: it was started in another network namespace, as of a container"
            ),
            Self::NoSocket(id) => {
                write!(f, "cannot commit {id}: its supervisor accepts no requests")
            }
            Self::OfAnotherUser(id) => {
                write!(f, "cannot commit {id}: only its user and root may do that")
            }
            Self::OfTwoUsers { id, socket, marker } => write!(
                f,
                "cannot commit {id}: its socket belongs to user {socket}, its marker to user {marker}"
            ),
            Self::OutOfReach => f.write_str(
                "cannot reach the supervisor of this sealed run: the run has ended, or this \
                 process is in another network namespace",
            ),
            Self::BuildStep => {
                f.write_str("cannot commit: this build step is held, and its engine stores it")
            }
            Self::Call(act, errno) => write!(f, "{act}: {}", reason(&(*errno).into())),
            Self::NoResult => f.write_str("the supervisor of the run ended without a result"),
            Self::Run(error) => error.fmt(f),
            Self::Unfinished(_) => f.write_str("not everything is durable yet"),
        }
    }
}

/// Makes everything durable that the run `id` has written until now. Without an id this is the run
/// that this process is in, or the only run of this user in flight. The run continues. Returns the
/// result for each file system.
///
/// `owner` is the user of the run `id`, if it is another user's and known: only that user's
/// supervisor may answer.
///
/// The process must have one thread: signals are blocked until the result is there.
///
/// # Errors
/// No result was received.
pub fn commit(
    id: Option<&str>,
    owner: Option<u32>,
    observer: &mut dyn Observer,
) -> Result<CommitReport, RequestError> {
    let supervisor = connect(id, owner)?;
    let waited = SignalSet::from_numbers(
        &[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].map(Signal::as_raw),
    );
    let mask = waited.block();
    let result = wait(&supervisor, &waited, observer);
    observer.progress_ends();
    mask.set();
    result
}

/// Returns a connection on which the supervisor of the run sends progress and result.
fn connect(id: Option<&str>, owner: Option<u32>) -> Result<OwnedFd, RequestError> {
    let named = std::env::var(RUN_VARIABLE).ok();
    let is_inside = id.is_none() || id == named.as_deref();
    match (is_inside.then(outer), id.or(named.as_deref())) {
        (Some(Outer::Supervised), _) => ask_own_supervisor(),
        (Some(Outer::Sealed), _) if is_in_step() => Err(RequestError::BuildStep),
        (Some(Outer::Sealed), _) => {
            let identity =
                seccomp::ask_identity(HANDSHAKE_FLAGS).ok_or(RequestError::OutOfReach)?;
            let socket = presence::connect_inside(&identity);
            ask(socket.map_err(|_| RequestError::OutOfReach)?)
        }
        (_, Some(id)) => ask_run(id, owner),
        (_, None) => ask_run(&only_run()?, None),
    }
}

/// Asks the supervisor that holds this process, which the kernel finds in every namespace.
fn ask_own_supervisor() -> Result<OwnedFd, RequestError> {
    let cannot = |errno| RequestError::Call("cannot ask the supervisor of this run", errno);
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (ours, theirs) = pair.map_err(cannot)?;
    let unsent = |errno| RequestError::Call("cannot open the working directory", errno);
    directory::send_ours(&ours).map_err(unsent)?;
    match Request::Commit(theirs.as_raw_fd()).make() {
        Ok(()) => Ok(ours),
        // The supervisor has released this process meanwhile.
        Err(Errno::BADF) => Err(RequestError::Run(RunError::Over)),
        Err(errno) => Err(cannot(errno)),
    }
}

fn ask_run(id: &str, owner: Option<u32>) -> Result<OwnedFd, RequestError> {
    let owner = own_user_of(id).or(owner);
    let socket = presence::connect_outside(id, owner).map_err(|unreached| match unreached {
        Unreached::Call(Errno::PERM) => RequestError::OfAnotherUser(id.to_owned()),
        Unreached::Call(errno) if !matches!(errno, Errno::CONNREFUSED | Errno::CONNRESET) => {
            RequestError::Call("cannot connect to the supervisor", errno)
        }
        _ if is_committing(Some(id)) => RequestError::Run(RunError::Over),
        Unreached::Call(_) => match in_flight().iter().find(|run| run.id == id) {
            None => RequestError::NotInFlight(id.to_owned()),
            Some(run) if is_in_our_network(run) => RequestError::NoSocket(id.to_owned()),
            Some(_) => RequestError::InOtherNetwork(id.to_owned()),
        },
        Unreached::OfTwoUsers { socket, marker } => {
            RequestError::OfTwoUsers { id: id.to_owned(), socket, marker }
        }
    })?;
    ask(socket)
}

/// Returns this user if the run `id` is theirs, by their markers. The marker of a run that was
/// killed stays.
fn own_user_of(id: &str) -> Option<u32> {
    let us = rustix::process::geteuid().as_raw();
    let marked = standard_paths::state().and_then(|state| recovery::markers(&state).ok());
    let is_own = |found: &FoundMarker| found.run() == (us, id.to_owned());
    marked.iter().flatten().any(is_own).then_some(us)
}

/// Whether /proc shows the supervisor of `run` in the network namespace of this process. The record
/// has its process id in its own pid namespace, the last one of `NSpid` (proc_pid_status(5)).
fn is_in_our_network(run: &RunRecord) -> bool {
    let network = |process: u32| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let Some(ours) = network(std::process::id()) else { return false };
    let own_id = |pid| {
        let ids = procfs::status_field(pid, "NSpid:")?;
        ids.split_whitespace().next_back()?.parse::<u32>().ok()
    };
    let is_its_supervisor = |pid: u32| {
        own_id(pid) == Some(run.supervisor)
            && procfs::process_name(pid).is_ok_and(|name| name == process_tree::SUPERVISOR)
    };
    procfs::pids().any(|pid| is_its_supervisor(pid) && network(pid).as_ref() == Some(&ours))
}

/// Whether the command of the run `id`, or without an id of any run of this user, has ended, and
/// the run makes its own commit.
fn is_committing(id: Option<&str>) -> bool {
    let is_ours =
        |run: &Live| id.is_none_or(|id| run.record.id == id) && run.phase == Phase::Committing;
    live().is_ok_and(|runs| runs.iter().any(is_ours))
}

fn ask(socket: OwnedFd) -> Result<OwnedFd, RequestError> {
    match presence::ask_for_commit(&socket) {
        // The supervisor has refused and closed; the refusal can be received.
        Ok(()) | Err(Errno::PIPE) => Ok(socket),
        Err(_) => Err(RequestError::NoResult),
    }
}

/// Returns the runs of this user that are in flight and whose command runs.
pub fn in_flight() -> Vec<RunRecord> {
    let (running, ending): (Vec<_>, Vec<_>) =
        live().unwrap_or_default().into_iter().partition(|run| run.phase == Phase::Running);
    let mut runs: Vec<RunRecord> = running.into_iter().map(|run: Live| run.record).collect();
    // The runs of a user without a runtime directory have no run file.
    let marked = standard_paths::state().and_then(|state| recovery::markers(&state).ok());
    let marked = marked.into_iter().flatten().filter(|found| found.state == MarkerState::InFlight);
    let is_known = |record: &RunRecord| {
        runs.iter().chain(ending.iter().map(|run| &run.record)).any(|run| run.id == record.id)
    };
    let marked: Vec<_> =
        marked.filter_map(|found| found.record).filter(|record| !is_known(record)).collect();
    runs.extend(marked);
    runs
}

/// Returns the id of the only run of this user that is in flight.
fn only_run() -> Result<String, RequestError> {
    let mut runs = in_flight();
    match (runs.len(), runs.pop()) {
        (1, Some(run)) => Ok(run.id),
        (_, None) if is_committing(None) => Err(RequestError::Run(RunError::Over)),
        (_, None) => Err(RequestError::NoRun),
        (_, Some(last)) => {
            runs.push(last);
            Err(RequestError::Several(runs))
        }
    }
}

/// Waits for the result, or until one of `signals` arrives that the caller does not ignore.
fn wait(
    supervisor: &OwnedFd,
    signals: &SignalSet,
    observer: &mut dyn Observer,
) -> Result<CommitReport, RequestError> {
    let cannot = |errno| RequestError::Call("cannot wait for the commit", errno);
    let reader = SignalReader::new(signals);
    let reader =
        reader.map_err(|error| cannot(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let mut unfinished = Vec::new();
    loop {
        let mut fds = [PollFd::new(supervisor, PollFlags::IN), PollFd::new(&reader, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None)).map_err(cannot)?;
        if !fds[0].revents().is_empty() {
            match receive(supervisor) {
                Ok(Some(Message::Progress { waiting, dirty })) => {
                    observer.progress(&waiting, dirty);
                    unfinished = waiting;
                }
                Ok(Some(Message::Notice(notice))) => observer.notice(&notice),
                Ok(Some(Message::Done(summary))) => return result(*summary),
                _ => return Err(RequestError::NoResult),
            }
        } else if reader.next().is_some_and(|received| !is_ignored(received.signal)) {
            return Err(RequestError::Unfinished(unfinished));
        }
    }
}

fn result(summary: Summary) -> Result<CommitReport, RequestError> {
    match (summary.commit, summary.error) {
        (Some(report), _) => Ok(report),
        (None, Some(error)) => Err(RequestError::Run(error)),
        (None, None) => Err(RequestError::NoResult),
    }
}
