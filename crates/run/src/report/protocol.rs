//! The messages from the supervisor to the frontend, and to a process that asked for a
//! checkpoint.

use crate::report::accounts::Accounts;
use crate::report::balance::Balance;
use crate::report::run_error::RunError;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use synconce_durable::commit::{FileSystemOutcome, Progress};
use synconce_durable::synced::Synced;
use synconce_durable::text;

/// A message. Paths of type [`PathBuf`] are for people to read.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The command runs.
    Started { pid: u32 },
    /// The marker is durable. `path` is the first marker's, with every byte, because the frontend
    /// looks for the file. Calls may be held from now on.
    Marked { path: Option<OsString> },
    /// A notice for the user.
    Notice(Notice),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command ended; the commit begins.
    Ended(Ending),
    /// The commit goes on.
    Progress {
        #[serde(serialize_with = "text::paths")]
        waiting: Vec<PathBuf>,
        dirty: u64,
    },
    /// The run, or the checkpoint, is over.
    Done(Box<Summary>),
    /// The run failed before the command started.
    Failed(RunError),
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// The command did not start, or its exit status is unknown.
    Unknown,
}

/// The result of a run, or of a checkpoint.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub accounts: Accounts,
    pub balance: Balance,
    pub commit: Option<CommitReport>,
    /// Why the run failed although the command ended.
    pub error: Option<RunError>,
    /// How the command ended; `None` if it did not start.
    pub end: Option<Ending>,
    /// Whether the supervisor stays, for survivors or a device that hangs.
    pub stays: bool,
}

/// A notice for the user about something that is not an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// A listener of another program is installed already: the run is sealed.
    ForeignListener,
    /// The command itself is setuid, setgid or has file capabilities, and gained no privileges.
    #[serde(serialize_with = "text::path")]
    NoPrivilegesGained(PathBuf),
    /// The run failed, and this program, which gains no privileges in a run, was opened meanwhile,
    /// by a process of the run or another. Sent once for each [`Gain`](crate::Gain).
    #[serde(serialize_with = "text::path")]
    PrivilegedProgramOpened(PathBuf),
    /// This program installs a filter of its own, which works in another way in a supervised run
    /// than without a run. Sent once for each kind.
    OwnFilter(OwnFilter, String),
    /// These processes outlive a sealed run with their syncs held.
    SealedSurvivors(Vec<String>),
    /// These processes go on after a supervised run, whose end gave them real syncs.
    Survivors(Vec<String>),
    /// These processes keep descriptors whose O_SYNC was taken away.
    UnsyncedDescriptors(Vec<String>),
    /// These processes are still in calls whose sync flag was taken away.
    UnfinishedCalls(Vec<String>),
    /// The marker, at this path, is in memory and lost in a power failure; the run's data are
    /// not.
    #[serde(serialize_with = "text::path")]
    MarkerInMemory(PathBuf),
    /// The run has waited for some seconds for a disk that may be frozen: to write its markers
    /// before the command starts, or to remove them at the end.
    MarkerDiskWaits {
        /// The directories of the markers.
        #[serde(serialize_with = "text::paths")]
        places: Vec<PathBuf>,
        /// Whether the command has ended.
        has_ended: bool,
    },
    /// The commit waits for these file systems, whose disks make no progress. Sent once.
    CommitStandsStill(#[serde(serialize_with = "text::paths")] Vec<PathBuf>),
    /// A sealed run held syncs on FUSE file systems mounted here and did not commit them.
    FuseNotCommitted(#[serde(serialize_with = "text::paths")] Vec<PathBuf>),
    /// The marker could not be made durable: no call was held, and every sync is real.
    RealSyncs(RunError),
    /// io_uring was allowed; its syncs were not held.
    IoUringPassed,
    /// With rules, syncs of callers that could not be examined were done.
    UnseenPassed,
    /// An earlier run was interrupted, and no notice was printed since the boot.
    EarlierInterrupted,
    /// Not everything became durable at a checkpoint of `--commit-every`. Sent once.
    CheckpointFailed(CommitReport),
}

/// A filter that works in another way in a supervised run than without synconce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OwnFilter {
    /// The filter stops calls for a tracer (`SECCOMP_RET_TRACE`), which does not see the calls
    /// that the run stops.
    Tracer,
    /// The filter answers syncs with success, so the run does not see them.
    Drops,
    /// The filter has a listener: the kernel refuses it with `EBUSY`.
    Listener,
    /// The strict mode, which the kernel refuses with `EINVAL`, also in a sealed run.
    Strict,
}

/// The result of the commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitReport {
    /// Wall time in microseconds.
    pub micros: u64,
    /// The result for each file system.
    pub file_systems: Vec<Committed>,
    /// The result of the sync(2) of everything else, if there was one.
    pub everything: Option<CommittedEverything>,
}

impl CommitReport {
    /// Whether everything became durable.
    pub fn is_durable(&self) -> bool {
        self.file_systems.iter().all(|one| one.error.is_none())
            && self.everything.iter().all(|all| all.error.is_none())
    }
}

/// The result of the commit's sync(2) and of the flush of the written disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedEverything {
    /// Wall time in microseconds; `None` if not everything is durable.
    pub micros: Option<u64>,
    /// Why not everything is durable.
    pub error: Option<String>,
}

/// The result of the commit of one file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The mount point.
    #[serde(serialize_with = "text::path")]
    pub mount_point: PathBuf,
    /// Its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The source of the mount.
    pub source: String,
    /// Wall time in microseconds; `None` if the file system is not durable.
    pub micros: Option<u64>,
    /// Why the file system is not durable.
    pub error: Option<String>,
}

/// Sends `message`. Blocks while the receiver, which may be stopped, has too many unread
/// messages.
///
/// # Errors
/// `EPIPE` if the other side is closed.
pub(crate) fn send(socket: impl AsFd, message: &Message) -> io::Result<()> {
    send_with(socket, message, SendFlags::NOSIGNAL)
}

/// Sends `message` unless the send would block: a thread that answers calls must not wait for
/// a stopped frontend. A message is lost only behind hundreds of unread messages. The
/// frontend's exit is detected elsewhere.
pub(crate) fn try_send(socket: impl AsFd, message: &Message) {
    let _ = send_with(socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Returns a function that sends the progress of a commit, and once a notice if the commit stands
/// still. A receiver that was killed or is stopped does not delay the commit.
pub(crate) fn progress_sender(socket: impl AsFd) -> impl FnMut(&Progress<'_>) {
    let owned = |paths: &[&Path]| paths.iter().map(|path| (*path).to_owned()).collect();
    let mut is_told = false;
    move |progress| {
        if !is_told && !progress.still.is_empty() {
            is_told = true;
            let notice = Notice::CommitStandsStill(owned(&progress.still));
            try_send(&socket, &Message::Notice(notice));
        }
        let waiting = owned(&progress.waiting);
        try_send(&socket, &Message::Progress { waiting, dirty: progress.dirty });
    }
}

/// Sends `error` as the result of a request, unless the send would block.
pub(crate) fn refuse(socket: impl AsFd, error: RunError) {
    let summary = Summary { error: Some(error), ..Summary::default() };
    try_send(socket, &Message::Done(Box::new(summary)));
}

fn send_with(socket: impl AsFd, message: &Message, flags: SendFlags) -> io::Result<()> {
    rustix::net::send(socket, &serde_json::to_vec(message)?, flags)?;
    Ok(())
}

/// Receives the next message, waiting for it. Returns `None` if the other side is closed.
///
/// # Errors
/// Those of recvmsg(2), and a malformed message.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Message>> {
    // Reads the length first: only the last message is long.
    let look = RecvFlags::PEEK | RecvFlags::TRUNC;
    let (_, length) = after_reset(|| rustix::net::recv(&socket, &mut [0_u8; 0][..], look))?;
    let mut text = vec![0; length];
    let read = || rustix::net::recv(&socket, &mut text[..], RecvFlags::empty());
    let (received, _) = after_reset(read)?;
    if received == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&text[..received])?))
}

/// Calls `read` again after `ECONNRESET`: the other side has closed without reading everything,
/// at any moment until now. The error comes once, and before a message that was sent earlier.
fn after_reset<T>(mut read: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    match read() {
        Err(Errno::CONNRESET) => read(),
        other => other,
    }
}

impl From<FileSystemOutcome> for Committed {
    fn from(outcome: FileSystemOutcome) -> Self {
        let error = outcome.result.as_ref().err().map(ToString::to_string);
        Self {
            mount_point: outcome.point,
            type_name: outcome.type_name,
            source: outcome.source,
            micros: outcome.result.ok().map(|time| time.as_micros() as u64),
            error,
        }
    }
}

impl From<Synced> for CommittedEverything {
    fn from(synced: Synced) -> Self {
        Self {
            error: synced.as_ref().err().map(ToString::to_string),
            micros: synced.ok().map(|time| time.as_micros() as u64),
        }
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn a_message_is_received_whenever_the_other_side_closes_without_reading_everything() {
        for _turn in 0..4000 {
            let flags = SocketFlags::CLOEXEC;
            let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
            let (ours, theirs) = pair.unwrap();
            rustix::net::send(&ours, b"unread", SendFlags::empty()).unwrap();
            let refusal = std::thread::spawn(move || refuse(theirs, RunError::NotAllowed));
            let received = receive(&ours).unwrap();
            assert!(matches!(received, Some(Message::Done(_))), "{received:?}");
            refusal.join().unwrap();
        }
    }
}
