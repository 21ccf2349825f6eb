//! Calls that unmount or freeze a file system, or that look for the data of a file on it.

use super::{Responder, callers_file};
use crate::call::policy::PendingCall;
use crate::call::rules::{Blocking, MayBlock};
use crate::commit::active::unmounting::Unmounting;
use crate::commit::state::Admission;
use crate::report::accounts::PassReason;
use std::os::fd::AsFd;
use synconce_sys::file_sync;

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

    /// Lets the kernel say where the caller's file is on the disk, once its data are written: the program
    /// has synced them, and data that are not written have no place there.
    pub(super) fn write_out(
        &self,
        pending: &PendingCall,
        blocking: Blocking,
    ) -> Result<(), MayBlock> {
        if blocking == Blocking::Refused {
            return Err(MayBlock);
        }
        if let Ok(file) = callers_file(pending) {
            // The kernel's answer to the caller tells of an error, too.
            let _ = file_sync::write_out(file.as_fd());
        }
        self.leave(pending);
        Ok(())
    }
}
