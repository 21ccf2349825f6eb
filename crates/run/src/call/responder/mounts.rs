//! Calls that unmount or freeze a file system.

use super::Responder;
use crate::call::policy::PendingCall;
use crate::call::rules::{Blocking, MayBlock};
use crate::commit::active::unmounting::Unmounting;
use crate::commit::state::Admission;
use crate::report::accounts::PassReason;

impl Responder {
    /// Syncs what the call `pending` ends.
    pub(super) fn unmount(&self, pending: &PendingCall, unmounting: Option<Unmounting>) {
        let unmount = |unmounting| Some(self.state.lock().run()?.unmount(unmounting));
        if let Some(unpin) = unmounting.and_then(unmount) {
            unpin(&|| self.listener.is_valid(pending.notification.id));
        }
    }

    /// Lets the kernel freeze a file system once the marker is durable: a frozen disk takes no
    /// marker, and the next sync would wait for the marker.
    pub(super) fn freeze(&self, pending: &PendingCall, blocking: Blocking) -> Result<(), MayBlock> {
        let never_held = |_: &mut _| Admission::Passed(PassReason::NeverHeld);
        self.admit(pending, &[], blocking, never_held)?;
        self.pass(pending, PassReason::NeverHeld);
        Ok(())
    }
}
