//! Calls that unmount or freeze a file system.

use super::{Handled, Reply, Responder};
use crate::accounts::{End, PassReason};
use crate::active::Unmounting;
use crate::fd_info::FdInfo;
use crate::policy::{Decision, PendingCall, decide};
use crate::state::Admitted;
use synconce_filter::Call;
use synconce_sys::notify::Answer;

impl Responder {
    /// Decides about `pending`. Returns `None` if an unmount no longer waits for an answer.
    ///
    /// The look-up of an unmount opens the mount point, and the kernel refuses to unmount what is
    /// open. A signal lets a thread repeat its call while a worker still looks up the interrupted
    /// call. So a thread's unmounts are looked up one after the other, and interrupted calls are
    /// not.
    pub(super) fn decide(&self, fd_info: &mut FdInfo, pending: &PendingCall) -> Option<Decision> {
        let looks_up = (pending.call == Call::Umount)
            .then(|| self.unmounters.wait_for(pending.notification.thread));
        let waits = looks_up.is_none() || self.listener.is_valid(pending.notification.id);
        waits.then(|| decide(fd_info, pending, &self.options))
    }

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
