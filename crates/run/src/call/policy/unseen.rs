//! Callers that the supervisor may not examine.
//!
//! A process needs CAP_SYS_PTRACE to examine a process of another user, or one that is not dumpable
//! (ptrace(2), "Ptrace access mode checking"). Root of a default container does not have this
//! capability. No process can be examined if /proc is of another pid namespace. In each case the
//! file of the caller's descriptor is unknown.

use super::Decision;
use crate::options::RunOptions;
use crate::report::accounts::PassReason;
use synconce_filter::{Call, CallProperty};

/// Returns the answer to a call. A call that is a sync by its arguments is answered as by a sealed
/// filter. A call with a sync flag passes, because only a tracer can take the flag away.
///
/// msync(2) passes. In a default container apt-get calls it on private memory, after it has
/// changed its effective user and so is not dumpable. A held call would make the commit sync
/// every disk of the host.
pub(super) fn decide(call: Call, options: &RunOptions) -> Decision {
    if !call.is(CallProperty::ByDescriptor) {
        return Decision::Pass(PassReason::Unseen);
    }
    let is_chosen = options.has_rules() || !options.commit_only.is_empty();
    if is_chosen { Decision::PassUnseen } else { Decision::HoldUnseen }
}
