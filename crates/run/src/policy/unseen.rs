//! Callers that the supervisor may not examine.
//!
//! A process may examine another user's process only with CAP_SYS_PTRACE, which the root of a
//! default container does not have, and a process that is not dumpable likewise (ptrace(2),
//! "Ptrace access mode checking"). No process can be examined if /proc is of another pid
//! namespace. What the caller's descriptor leads to is unknown then.

use super::{Decision, PendingCall};
use crate::accounts::PassReason;
use crate::options::RunOptions;
use synconce_filter::Call;

/// Returns the answer to calls about which the caller's memory decides, if no memory can be read.
pub(super) fn by_call(call: Call) -> Option<Decision> {
    match call {
        Call::Open | Call::Openat | Call::OpenByHandleAt => {
            Some(Decision::Pass(PassReason::Unseen))
        }
        Call::Openat2 | Call::IoSubmit | Call::Seccomp | Call::Prctl => Some(Decision::Ignore),
        Call::Umount => Some(Decision::Unmount(None)),
        _ => None,
    }
}

/// Returns the answer to a call that is a sync by its arguments: that of a sealed filter. A call
/// with a sync flag passes, because only a tracer can take the flag away.
///
/// msync(2) passes. In a default container apt-get calls it on private memory, after it has
/// changed its effective user and so is not dumpable. A held call would make the commit sync
/// every disk of the host.
pub(super) fn decide(pending: &PendingCall, options: &RunOptions) -> Decision {
    use Call::{Fdatasync, Fsync, SyncFileRange, Syncfs};
    if !matches!(pending.call, Fsync | Fdatasync | Syncfs | SyncFileRange) {
        return Decision::Pass(PassReason::Unseen);
    }
    if options.has_rules() || !options.commit_only.is_empty() {
        Decision::PassUnseen
    } else {
        Decision::HoldUnseen
    }
}
