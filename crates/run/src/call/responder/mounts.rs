//! Calls that unmount or freeze a file system, or detach a loop device.

use super::Responder;
use super::callers_file::callers_file;
use crate::call::policy::PendingCall;
use crate::call::rules::{Blocking, MayBlock};
use crate::commit::active::unmounting::Unmounting;
use crate::commit::state::Admission;
use crate::report::accounts::PassReason;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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

    /// Writes out a loop device before the kernel detaches the device from its file. After that
    /// the kernel fails the writes of the device (`loop_queue_rq`, drivers/block/loop.c), so the
    /// commit cannot write what a held sync() left unwritten.
    pub(super) fn detach(&self, pending: &PendingCall, blocking: Blocking) -> Result<(), MayBlock> {
        if blocking == Blocking::Refused {
            return Err(MayBlock);
        }
        if let Ok(device) = callers_file(pending) {
            // sync(2) reports no error either.
            let _ = write_out(&device);
        }
        self.leave(pending);
        Ok(())
    }
}

/// Writes the dirty pages of a block device out, without a flush: the commit syncs the file behind
/// a loop device. Opens the device anew, so that the caller's descriptor still reports errors.
fn write_out(disk: &OwnedFd) -> io::Result<()> {
    if !FileType::from_raw_mode(fstat(disk)?.st_mode).is_block_device() {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", disk.as_raw_fd());
    let device = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    file_sync::write_pages(device.as_fd())
}
