//! How a process finds out whether it is held.

use crate::process::process_tree;
use crate::report::run_error::RunError;
use crate::request::presence;
use rustix::io::Errno;
use rustix::process::Signal;
use std::env;
use synconce_filter::{
    HANDSHAKE_FLAGS, HANDSHAKE_SEALED_ERRNO, HANDSHAKE_STEP, HANDSHAKE_STEP_ERRNO,
};
use synconce_sys::process::{self, ChildChange, Side, WaitFor, Whose};
use synconce_sys::seccomp::{self, Outer};

/// Set in the command's environment to the run's id, after which the run file is named:
/// `/run/synconce/ID.json`. A process without this variable finds the run file by the supervisor
/// recorded in it, which is one of the process's ancestors.
pub(crate) const RUN_VARIABLE: &str = "SYNCONCE_RUN";

/// The supervisor's answer to the question whether the caller is held.
pub(crate) const HANDSHAKE_VALUE: i64 = 0x51;

/// The supervisor's answer to a [`Request`] that it accepts.
pub(crate) const ACCEPTED: i64 = 0x52;

/// What a process of a supervised run asks its supervisor for, by the question whether it is
/// held with another offset. The kernel gives the supervisor the caller's id, so no process can
/// ask for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Make a checkpoint, and send its progress and result to this descriptor of the caller.
    Commit(i32),
    /// Pass the syncs of the calling process and its descendants.
    Real,
    /// Say whether the run makes a commit: `EACCES` if it makes none.
    Commits,
}

impl Request {
    const COMMIT: i64 = 0x101;
    const REAL: i64 = 0x102;
    // 0x103 is the question of `HANDSHAKE_STEP`.
    const COMMITS: i64 = 0x104;

    /// Returns the request with this offset and length.
    pub(crate) fn decode(offset: i64, length: i64) -> Option<Self> {
        match offset {
            Self::COMMIT => i32::try_from(length).ok().map(Self::Commit),
            Self::REAL => Some(Self::Real),
            Self::COMMITS => Some(Self::Commits),
            _ => None,
        }
    }

    /// Makes the request.
    ///
    /// # Errors
    /// The supervisor refused it, with this errno, or is of a version without requests.
    pub(crate) fn make(self) -> Result<(), Errno> {
        let (offset, length) = match self {
            Self::Commit(fd) => (Self::COMMIT, i64::from(fd)),
            Self::Real => (Self::REAL, 0),
            Self::Commits => (Self::COMMITS, 0),
        };
        match seccomp::request(HANDSHAKE_FLAGS, offset, length) {
            Ok(ACCEPTED) => Ok(()),
            Ok(_) => Err(Errno::OPNOTSUPP),
            Err(errno) => Err(Errno::from_raw_os_error(errno)),
        }
    }
}

/// Whether this process is in a run already, which holds and commits for its descendants, or in a
/// held build step. [`run`](crate::run) then executes the command in this process, and does not
/// return.
pub fn is_held() -> bool {
    match outer() {
        Outer::Supervised => true,
        // A sealed filter outlives its run; then no commit would follow.
        Outer::Sealed => is_in_step() || has_supervisor(),
        Outer::None => false,
    }
}

/// Finds filters around this process that kill each process that syncs, as
/// `SystemCallFilter=~@sync` of systemd does: a child asks the question of `outer`. Costs nothing
/// without a filter.
///
/// # Errors
/// There is such a filter: any question would kill this process, too.
pub fn refuse_deadly_filter() -> Result<(), RunError> {
    if env::var_os(RUN_VARIABLE).is_some() || !seccomp::is_filtered() {
        return Ok(());
    }
    // Without a child there is no answer.
    let Ok(side) = process::fork() else { return Ok(()) };
    let Side::Parent(child) = side else {
        outer();
        process::exit_now(0);
    };
    let end =
        process::wait(Whose::Id(child), WaitFor { ends: true, block: true, ..<_>::default() });
    let is_killed = |end| matches!(end, ChildChange::Killed(by) if by == Signal::SYS.as_raw());
    match end {
        Ok(Some((_, end))) if is_killed(end) => Err(RunError::DeadlyFilter),
        _ => Ok(()),
    }
}

/// Whether this process is in a build step that `synconce-oci` holds. Such a step needs no commit:
/// after its end the engine stores its files.
pub fn is_in_step() -> bool {
    let answer = seccomp::request(HANDSHAKE_FLAGS, HANDSHAKE_STEP, 0);
    answer == Err(i32::from(HANDSHAKE_STEP_ERRNO))
}

/// Whether this process is in a supervised run without a commit: one with `--no-commit`, or a
/// `tree run` without a disk of `--bind`. The filter of a sealed run does not say so.
pub fn is_uncommitted() -> bool {
    outer() == Outer::Supervised && Request::Commits.make() == Err(Errno::ACCESS)
}

/// Returns the kind of hold that the calling process is under.
pub(crate) fn outer() -> Outer {
    seccomp::ask_outer(HANDSHAKE_FLAGS, HANDSHAKE_VALUE, i32::from(HANDSHAKE_SEALED_ERRNO))
}

/// Whether the commit of the sealed run that the calling process is in is still to come: the
/// supervisor still waits for its command.
///
/// In another network namespace the supervisor's socket cannot be reached. There an ancestor
/// with the supervisor's name counts as well.
pub(crate) fn has_supervisor() -> bool {
    let identity = seccomp::ask_identity(HANDSHAKE_FLAGS);
    identity.is_some_and(|identity| presence::is_alive(&identity))
        || process_tree::ancestors(std::process::id())
            .any(|ancestor| ancestor.name == process_tree::SUPERVISOR)
}
