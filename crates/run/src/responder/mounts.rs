//! Calls that unmount or freeze a file system.

use super::{Handled, Reply, Responder};
use crate::accounts::{End, PassReason};
use crate::active::Unmounting;
use crate::policy::PendingCall;
use crate::state::Admitted;
use synconce_sys::notify::Answer;

impl Responder {
    /// Syncs what the call `pending` ends. Returns the answer.
    pub(super) fn unmount(&self, pending: &PendingCall, unmounting: Option<Unmounting>) -> Answer {
        let unmount = |unmounting| Some(self.state.lock().run()?.unmount(unmounting));
        if let Some(unpin) = unmounting.and_then(unmount) {
            unpin(&|| self.listener.is_valid(pending.notification.id));
        }
        Answer::Continue
    }

    /// Makes the marker durable before the freeze.
    ///
    /// # Errors
    /// How far the handling came, if there is no reply.
    pub(super) fn freeze(&self, pending: &PendingCall, may_wait: bool) -> Result<Reply, Handled> {
        match self.ask(pending, |active| active.admit_freeze(may_wait), may_wait, |_| {}) {
            Admitted::Gone => Err(Handled::Done),
            Admitted::Patience => Err(Handled::MayBlock),
            _ => Ok(self.count(pending, End::Passed(PassReason::NeverHeld), Answer::Continue)),
        }
    }
}
