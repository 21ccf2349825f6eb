//! What the supervisor tells the face, over a pair of sockets.

use crate::accounts::Accounts;
use crate::trouble::Trouble;
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use synconce_durable::text;

/// One message. Its paths are for people to read.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The command runs.
    Started { pid: u32 },
    /// The marker is durable; where the first one is. Calls may be held from now on.
    Marked {
        #[serde(serialize_with = "text::path_if_any")]
        path: Option<PathBuf>,
    },
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
    /// A program was executed that is setuid, setgid or has file capabilities, and gained
    /// no rights. Comes once for each [`Gain`](crate::Gain) of the run.
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
    /// A sealed run held syncs on FUSE file systems mounted here and committed none.
    FuseNotCommitted(#[serde(serialize_with = "text::paths")] Vec<PathBuf>),
    /// `/proc` is of another pid namespace, or is not there: no call can be looked at, so
    /// none is held. Comes with the first sync.
    ForeignProc,
    /// io_uring was let through; its syncs were not held.
    IoUringPassed,
    /// An earlier run was interrupted; the user was not told since the boot.
    EarlierInterrupted,
}

/// How the commit went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitReport {
    /// Wall time in microseconds.
    pub micros: u64,
    /// Each file system.
    pub file_systems: Vec<Committed>,
    /// The sync(2) of everything else, where one was needed.
    pub everything: Option<CommittedEverything>,
}

impl CommitReport {
    /// Whether all of it became durable.
    pub fn is_durable(&self) -> bool {
        self.file_systems.iter().all(|one| one.error.is_none())
            && self.everything.iter().all(|all| all.error.is_none())
    }
}

/// How the sync(2) of the commit went, and the flush of the disks that were written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedEverything {
    /// Wall time in microseconds; `None` when not everything is durable.
    pub micros: Option<u64>,
    /// Why not everything is durable.
    pub error: Option<String>,
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

/// Sends `message`. Waits while the receiver, which may be stopped, has too much to
/// read already.
///
/// # Errors
/// `EPIPE` when the other side is gone.
pub(crate) fn send(socket: impl AsFd, message: &Message) -> io::Result<()> {
    send_with(socket, message, SendFlags::NOSIGNAL)
}

/// Sends `message` unless that would have to wait: whoever answers calls must
/// not wait for a face that is stopped. A message that is lost is one among
/// hundreds that were not read; the face's end is noticed elsewhere.
pub(crate) fn offer(socket: impl AsFd, message: &Message) {
    let _ = send_with(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn send_with(socket: impl AsFd, message: &Message, flags: SendFlags) -> io::Result<()> {
    rustix::net::send(socket, &serde_json::to_vec(message)?, flags)?;
    Ok(())
}

/// Receives the next message, waiting for it; `None` when the other side is gone.
///
/// # Errors
/// Those of `recvmsg(2)`, and a message that cannot be understood.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Message>> {
    // A look at the length first: messages are short but for the last.
    let look = RecvFlags::PEEK | RecvFlags::TRUNC;
    let (_, length) = match rustix::net::recv(&socket, &mut [0_u8; 0][..], look) {
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        other => other?,
    };
    let mut text = vec![0; length];
    let received = match rustix::net::recv(socket, &mut text[..], RecvFlags::empty()) {
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        other => other?.0,
    };
    if received == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&text[..received])?))
}

#[cfg(test)]
mod fuzz;
