//! How a process finds out whether it is held.

use crate::{presence, process_tree};
use synconce_filter::{HANDSHAKE_FLAGS, HANDSHAKE_SEALED_ERRNO};
use synconce_sys::seccomp::{self, Outer};

/// Set in the command's environment to the run's id, after which the run file is named:
/// `/run/synconce/ID.json`. A process without this variable finds the run file by the supervisor
/// recorded in it, which is one of the process's ancestors.
pub(crate) const RUN_VARIABLE: &str = "SYNCONCE_RUN";

/// The supervisor's answer to the question whether the caller is held.
pub(crate) const HANDSHAKE_VALUE: i64 = 0x51;

/// Returns the kind of hold that the calling process is under.
pub(crate) fn outer() -> Outer {
    seccomp::ask_outer(HANDSHAKE_FLAGS, HANDSHAKE_VALUE, i32::from(HANDSHAKE_SEALED_ERRNO))
}

/// Whether the supervisor of the sealed run that the calling process is in still waits for its
/// command, so that a commit is still to come.
///
/// In another network namespace the supervisor's socket cannot be reached. There an ancestor
/// with the supervisor's name counts as well.
pub(crate) fn has_supervisor() -> bool {
    let identity = seccomp::ask_identity(HANDSHAKE_FLAGS);
    identity.is_some_and(|identity| presence::is_alive(&identity))
        || process_tree::ancestors(std::process::id())
            .any(|ancestor| ancestor.name == process_tree::SUPERVISOR)
}
