//! How a command can know that it is held.

use crate::{presence, process_tree};
use synconce_filter::{HANDSHAKE_FLAGS, HANDSHAKE_SEALED_ERRNO};
use synconce_sys::seccomp::{self, Outer};

/// Set in the command's environment to the run's name, after which the run file
/// is called: `/run/synconce/NAME.json`. A process that lost its environment
/// finds it by the supervisor that it names, which is one of its ancestors.
pub const RUN_VARIABLE: &str = "SYNCONCE_RUN";

/// What a supervisor answers to the question "am I held?".
pub(crate) const HANDSHAKE_VALUE: i64 = 0x51;

/// The hold that the calling process is under.
pub fn outer() -> Outer {
    seccomp::ask_outer(HANDSHAKE_FLAGS, HANDSHAKE_VALUE, i32::from(HANDSHAKE_SEALED_ERRNO))
}

/// Whether the supervisor of the sealed run that the calling process is in still waits for
/// its command, so that a commit is still to come.
///
/// In the namespace of another network its socket is out of reach; then the supervisor may
/// be seen among our ancestors.
pub(crate) fn has_supervisor() -> bool {
    let identity = seccomp::ask_identity(HANDSHAKE_FLAGS);
    identity.is_some_and(|identity| presence::is_alive(&identity))
        || process_tree::ancestors(std::process::id())
            .any(|ancestor| ancestor.name == process_tree::SUPERVISOR)
}
