//! What the supervisor tells the face, over a pair of sockets.

use crate::accounts::Accounts;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use synconce_durable::text;

/// One message. Its paths are for people to read.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The command runs; the listener comes along unless the run is sealed.
    Started { pid: u32 },
    /// Something the user should know.
    Notice(Notice),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command ended; the commit begins.
    Ended(CommandEnd),
    /// The commit goes on.
    Progress {
        #[serde(serialize_with = "text::paths")]
        waiting: Vec<PathBuf>,
        dirty: u64,
    },
    /// All is done.
    Done(Box<Summary>),
    /// The run came to nothing, before the command started.
    Failed(Trouble),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CommandEnd {
    Exited(i32),
    Killed(i32),
}

/// What the supervisor knows at the end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub accounts: Accounts,
    pub commit: Option<CommitReport>,
    /// Why the run failed although the command ended.
    pub trouble: Option<Trouble>,
    /// How the command ended; `None` when it did not start.
    pub end: Option<CommandEnd>,
    /// Whether the supervisor stays, for survivors or a device that hangs.
    pub stays: bool,
}

/// What the user should know, though nothing failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// Another supervisor listens already: the run is sealed.
    ForeignListener,
    /// A setuid or setgid program was executed and gained no rights.
    #[serde(serialize_with = "text::path")]
    NoRightsGained(PathBuf),
    /// These processes outlive a sealed run with their syncs held.
    SealedSurvivors(Vec<String>),
    /// These processes keep descriptors whose O_SYNC was taken away.
    UnsyncedDescriptors(Vec<String>),
    /// These processes are still in calls whose sync flag was taken away.
    UnfinishedCalls(Vec<String>),
    /// The marker, here, goes with the power, though the run's data do not.
    #[serde(serialize_with = "text::path")]
    MarkerInMemory(PathBuf),
    /// io_uring was let through; its syncs were not held.
    IoUringPassed,
    /// An earlier run was interrupted; the user was not told since the boot.
    EarlierInterrupted,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// The run could not be set up; the command did not start.
    SetUp(String),
    /// The command could not be executed.
    Exec {
        /// The command's name.
        command: String,
        /// The errno of `execve(2)`.
        errno: i32,
    },
    /// The marker could not be made durable, so nothing was held.
    Marker(String),
    /// Not everything became durable; see the commit report.
    Commit,
    /// The marker of a committed run could not be removed.
    Clear(String),
    /// The supervisor was killed.
    SupervisorDied,
}

/// How the commit went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitReport {
    /// Wall time in microseconds.
    pub micros: u64,
    /// Each file system.
    pub file_systems: Vec<Committed>,
}

/// How the commit of one file system went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// Where it is mounted.
    #[serde(serialize_with = "text::path")]
    pub mount_point: PathBuf,
    /// Its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// What is mounted.
    pub source: String,
    /// Wall time in microseconds; `None` when it is not durable.
    pub micros: Option<u64>,
    /// Why it is not durable.
    pub error: Option<String>,
}

/// Sends `message`, with `fd` as a copy in the receiver's table. Waits while the
/// receiver, which may be stopped, has too much to read already.
///
/// # Errors
/// `EPIPE` when the other side is gone.
pub(crate) fn send(
    socket: impl AsFd,
    message: &Message,
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    send_with(socket, message, fd, SendFlags::NOSIGNAL)
}

/// Sends `message` unless that would have to wait: whoever answers calls must
/// not wait for a face that is stopped. A message that is lost is one among
/// hundreds that were not read; the face's end is noticed elsewhere.
pub(crate) fn offer(socket: impl AsFd, message: &Message) {
    let _ = send_with(socket, message, None, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn send_with(
    socket: impl AsFd,
    message: &Message,
    fd: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fd.into_iter().collect();
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let slices = [IoSlice::new(&text)];
    rustix::net::sendmsg(socket, &slices, &mut ancillary, flags)?;
    Ok(())
}

/// Receives the next message, waiting for it; `None` when the other side is gone.
///
/// # Errors
/// Those of `recvmsg(2)`, and a message that cannot be understood.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    // A look at the length first: messages are short but for the last.
    let look = RecvFlags::PEEK | RecvFlags::TRUNC;
    let (_, length) = match rustix::net::recv(&socket, &mut [0_u8; 0][..], look) {
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        other => other?,
    };
    let mut text = vec![0; length];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut text)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = match rustix::net::recvmsg(socket, &mut slices, &mut ancillary, flags) {
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        other => other?,
    };
    if received.bytes == 0 || received.flags.contains(ReturnFlags::TRUNC) {
        return Ok(None);
    }
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(Some((serde_json::from_slice(&text[..received.bytes])?, fd)))
}

#[cfg(test)]
mod fuzz;
