//! Decides how each call that syncs is answered.

mod aio;
mod msync;
mod open;
mod own_filter;
mod unseen;

use crate::call::caller::program;
use crate::call::fd_info::{LookupError, Target};
use crate::call::lookups::Lookups;
use crate::call::rules::MayBlock;
use crate::commit::active::unmounting::{How, Unmounting};
use crate::options::RunOptions;
use crate::report::accounts::PassReason;
use crate::report::protocol::OwnFilter;
use crate::request::held::Request;
use std::os::fd::AsRawFd;
use synconce_filter::{Abi, Call, HANDSHAKE_FLAGS, args};
use synconce_probe::mounts::DeviceId;
use synconce_sys::notify::Notification;

/// The answer to a call.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Answer success without doing the call. Holds the file systems that the call concerns.
    Hold(Vec<DeviceId>),
    /// Answer success without doing the call, although its file system is unknown.
    HoldUnseen,
    /// Leave the call to the kernel, and count it.
    Pass(PassReason),
    /// The same, and print a notice: rules choose files, and this call's file is unknown.
    PassUnseen,
    /// Leave the call, which freezes a file system, to the kernel once the marker is durable.
    Freeze,
    /// Leave the call to the kernel: it is not a sync.
    Ignore,
    /// Answer an errno that makes the program fall back.
    Refuse(i32),
    /// Let the kernel do the call without its sync flag.
    Rewrite(CallChange),
    /// Answer the question whether the caller is held.
    Handshake,
    /// Do what the caller asks for.
    Request(Request),
    /// Let the kernel install a filter that does not work in a run as it does without.
    OwnFilter(OwnFilter),
    /// Release the pins of the mounts that the call ends, then let the kernel unmount them.
    Unmount(Option<Unmounting>),
    /// Leave the call, which flushes a block device, to the kernel, and count it. From now on the
    /// syncs of the caller are real: it reads the disk below the file system, where held data are
    /// missing.
    FlushDevice,
    /// Write out the loop device of the call, then let the kernel detach the device from its file.
    Detach,
    /// Make what was held durable, then let the kernel restart or halt the machine.
    EndMachine,
}

type Decided = Result<Decision, LookupError>;

/// How a call is changed before the kernel does it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallChange {
    /// Bits to clear in an argument register.
    pub argument: Option<(usize, u64)>,
    /// Bytes to replace in memory, and to restore afterwards.
    pub patches: Vec<Patch>,
    /// Whether the call opens a descriptor.
    pub opens: bool,
    /// The file systems that the call writes.
    pub devices: Vec<DeviceId>,
}

/// Bytes of a caller's memory.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    pub address: u64,
    pub old: Vec<u8>,
    pub new: Vec<u8>,
}

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCall {
    pub notification: Notification,
    pub abi: Abi,
    pub call: Call,
}

impl PendingCall {
    fn thread(&self) -> u32 {
        self.notification.thread
    }

    fn argument(&self, index: usize) -> u64 {
        let argument = self.notification.args[index];
        // A 32-bit caller has 32-bit registers. x32 zero-extends its pointers.
        if self.abi.is_32_bit() { u64::from(args::low(argument)) } else { argument }
    }

    fn descriptor(&self, index: usize) -> i32 {
        args::descriptor(self.notification.args[index])
    }

    /// The name of the calling program.
    pub(crate) fn program(&self) -> Option<String> {
        program(self.thread())
    }
}

/// Decides how `pending` is answered. A call that is to be held may yet pass, if the commit will
/// not cover it ([`SharedState::admit`](crate::commit::state::SharedState::admit)).
///
/// # Errors
/// A look-up may wait for another process, and this thread may not.
pub(crate) fn decide(
    pending: &PendingCall,
    lookups: &mut impl Lookups,
    options: &RunOptions,
) -> Result<Decision, MayBlock> {
    let decision = match examine(pending, lookups, options) {
        Ok(decision) => decision,
        Err(LookupError::MayBlock) => return Err(MayBlock),
        Err(LookupError::NoFile) => Decision::Pass(PassReason::NoFile),
        // The caller has exited, and so /proc does not show it.
        Err(LookupError::Unseen) if !lookups.caller_waits() => Decision::Ignore,
        Err(LookupError::Unseen) => unseen::decide(pending.call, options),
    };
    match decision {
        Decision::Hold(_) | Decision::HoldUnseen | Decision::Rewrite(_) | Decision::PassUnseen => {
            Ok(lookups.why_real().map_or(decision, Decision::Pass))
        }
        decision => Ok(decision),
    }
}

/// Decides by what the call leads to.
fn examine(pending: &PendingCall, lookups: &mut impl Lookups, options: &RunOptions) -> Decided {
    Ok(match pending.call {
        Call::Fsync | Call::Fdatasync => sync(pending, lookups, Target::is_held)?,
        Call::Syncfs => sync(pending, lookups, Target::is_held_whole)?,
        // Files with real syncs may be on any file system.
        Call::Sync if options.has_rules() => Decision::Pass(PassReason::Rule),
        Call::Sync => Decision::Hold(Vec::new()),
        Call::SyncFileRange => sync_file_range(pending, lookups)?,
        Call::Msync => msync::decide(pending, lookups)?,
        Call::Open => open::open(pending, lookups, rustix::fs::CWD.as_raw_fd(), 0)?,
        Call::Openat => open::open(pending, lookups, pending.descriptor(0), 1)?,
        Call::OpenByHandleAt => open::open_by_handle(pending, lookups)?,
        Call::Openat2 => open::openat2(pending, lookups)?,
        Call::Preadv2 | Call::Pwritev2 => transfer(pending, lookups)?,
        Call::IoSubmit => aio::decide(pending, lookups)?,
        Call::IoUringSetup if options.io_uring_pass => Decision::Pass(PassReason::NeverHeld),
        Call::IoUringSetup => Decision::Refuse(rustix::io::Errno::NOSYS.raw_os_error()),
        Call::Ioctl if args::low(pending.argument(1)) == args::FIFREEZE => Decision::Freeze,
        Call::Ioctl if args::low(pending.argument(1)) == args::BLKFLSBUF => Decision::FlushDevice,
        Call::Ioctl if args::low(pending.argument(1)) == args::LOOP_CLR_FD => Decision::Detach,
        Call::Ioctl | Call::Quotactl | Call::QuotactlFd => Decision::Pass(PassReason::NeverHeld),
        Call::Umount => unmount(pending, lookups),
        Call::Reboot => Decision::EndMachine,
        Call::Seccomp | Call::Prctl => own_filter::decide(pending, lookups),
    })
}

/// Decides about a sync of the file or file system that the first argument leads to.
fn sync(
    pending: &PendingCall,
    lookups: &mut impl Lookups,
    is_held: impl Fn(&Target) -> bool,
) -> Decided {
    let target = lookups.descriptor(pending.descriptor(0))?;
    let hold = || Decision::Hold(vec![target.device]);
    Ok(if is_held(&target) { hold() } else { Decision::Pass(target.why_passed()) })
}

fn sync_file_range(pending: &PendingCall, lookups: &mut impl Lookups) -> Decided {
    let (offset, length, flags) = args::sync_file_range(pending.abi, &pending.notification.args);
    if flags == HANDSHAKE_FLAGS && pending.descriptor(0) == -1 {
        return Ok(Request::decode(offset, length).map_or(Decision::Handshake, Decision::Request));
    }
    // The kernel's own conditions for EINVAL (fs/sync.c).
    let valid = offset >= 0
        && offset.checked_add(length).is_some_and(|end| end >= offset)
        && flags & !args::SYNC_FILE_RANGE_MASK == 0;
    if !valid {
        return Ok(Decision::Pass(PassReason::Arguments));
    }
    // Also a call that only starts write-back: installs were no faster when such calls passed, and
    // took as much processor time.
    sync(pending, lookups, Target::is_held)
}

fn transfer(pending: &PendingCall, lookups: &mut impl Lookups) -> Decided {
    let target = lookups.descriptor(pending.descriptor(0))?;
    // Other file types pass: on a directory the kernel refuses the flag.
    if !target.is_held_file() {
        return Ok(Decision::Pass(target.why_passed()));
    }
    Ok(Decision::Rewrite(CallChange {
        argument: Some((args::rwf_index(pending.abi), args::RWF_SYNC_MASK.into())),
        devices: vec![target.device],
        ..CallChange::default()
    }))
}

fn unmount(pending: &PendingCall, lookups: &impl Lookups) -> Decision {
    // The old umount(2) of i386 has no flags.
    let has_flags =
        Call::Umount.number(pending.abi) == Some(pending.notification.number.cast_unsigned());
    let flags = if has_flags { pending.argument(1) } else { 0 };
    let how = match flags {
        _ if flags & MNT_DETACH != 0 => How::WithAllBelow,
        _ if flags & MNT_EXPIRE != 0 => How::IfExpired,
        _ => How::Alone,
    };
    let path = lookups.memory().ok().and_then(|memory| memory.path(pending.argument(0)).ok());
    Decision::Unmount(path.and_then(|path| lookups.unmounting(&path, how)))
}

/// Flags of umount2(2).
const MNT_DETACH: u64 = 2;
const MNT_EXPIRE: u64 = 4;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
