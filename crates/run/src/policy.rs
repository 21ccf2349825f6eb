//! Decides how each call that syncs is answered.

mod msync;
mod own_filter;
mod unseen;

pub use self::own_filter::OwnFilter;

use crate::accounts::PassReason;
use crate::active::{How, Unmounting};
use crate::caller::{Memory, program};
use crate::fd_info::{FdInfo, Target};
use crate::held::Request;
use crate::options::RunOptions;
use crate::paths::Start;
use crate::rules::RuleVerdict;
use rustix::fs::{FileType, OFlags};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
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
}

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

/// Whether deciding about `call`, or changing it, may wait for another process: the decision
/// looks up paths, reads memory, or traces the caller.
pub(crate) fn may_block(call: Call) -> bool {
    !matches!(
        call,
        Call::Fsync
            | Call::Fdatasync
            | Call::Sync
            | Call::Syncfs
            | Call::SyncFileRange
            | Call::IoUringSetup
            | Call::Ioctl
            | Call::Quotactl
            | Call::QuotactlFd
    )
}

/// Returns the answer to `pending`.
pub(crate) fn decide(
    fd_info: &mut FdInfo,
    pending: &PendingCall,
    options: &RunOptions,
) -> Decision {
    let blind = if fd_info.is_blind() { unseen::by_call(pending.call) } else { None };
    let decision = blind.unwrap_or_else(|| examine(fd_info, pending, options));
    match fd_info.take_unseen() {
        true if matches!(decision, Decision::Pass(_)) => unseen::decide(pending, options),
        _ => decision,
    }
}

fn examine(fd_info: &mut FdInfo, pending: &PendingCall, options: &RunOptions) -> Decision {
    match pending.call {
        Call::Fsync | Call::Fdatasync => hold_if(sync_target(fd_info, pending, Target::is_held)),
        Call::Syncfs => hold_if(sync_target(fd_info, pending, Target::is_held_whole)),
        // Files with real syncs may be on any file system.
        Call::Sync if options.has_rules() => Decision::Pass(PassReason::Rule),
        Call::Sync => Decision::Hold(Vec::new()),
        Call::SyncFileRange => sync_file_range(fd_info, pending),
        Call::Msync => msync::decide(fd_info, pending),
        Call::Open => open(fd_info, pending, rustix::fs::CWD.as_raw_fd(), 0),
        Call::Openat => open(fd_info, pending, pending.descriptor(0), 1),
        Call::OpenByHandleAt => open_by_handle(fd_info, pending),
        Call::Openat2 => openat2(fd_info, pending).unwrap_or(Decision::Ignore),
        Call::Preadv2 | Call::Pwritev2 => transfer(fd_info, pending),
        Call::IoSubmit => io_submit(fd_info, pending).unwrap_or(Decision::Ignore),
        Call::IoUringSetup if options.io_uring_pass => Decision::Pass(PassReason::NeverHeld),
        Call::IoUringSetup => Decision::Refuse(rustix::io::Errno::NOSYS.raw_os_error()),
        Call::Ioctl if args::low(pending.argument(1)) == args::FIFREEZE => Decision::Freeze,
        Call::Ioctl | Call::Quotactl | Call::QuotactlFd => Decision::Pass(PassReason::NeverHeld),
        Call::Umount => unmount(pending),
        Call::Seccomp | Call::Prctl => {
            own_filter::installed(pending).map_or(Decision::Ignore, Decision::OwnFilter)
        }
    }
}

fn hold_if(device: Result<DeviceId, PassReason>) -> Decision {
    device.map_or_else(Decision::Pass, |device| Decision::Hold(vec![device]))
}

/// Returns the file system of the target, or why its sync passes.
fn sync_target(
    fd_info: &mut FdInfo,
    pending: &PendingCall,
    held: impl Fn(&Target) -> bool,
) -> Result<DeviceId, PassReason> {
    let target = fd_info.descriptor(pending.thread(), pending.descriptor(0));
    let target = target.ok_or(PassReason::NoFile)?;
    if held(&target) { Ok(target.device) } else { Err(target.why_passed()) }
}

fn sync_file_range(fd_info: &mut FdInfo, pending: &PendingCall) -> Decision {
    let (offset, length, flags) = args::sync_file_range(pending.abi, &pending.notification.args);
    if flags == HANDSHAKE_FLAGS && pending.descriptor(0) == -1 {
        return Request::of(offset, length).map_or(Decision::Handshake, Decision::Request);
    }
    // The kernel's own conditions for EINVAL (fs/sync.c).
    let valid = offset >= 0
        && offset.checked_add(length).is_some_and(|end| end >= offset)
        && flags & !args::SYNC_FILE_RANGE_MASK == 0;
    if !valid {
        return Decision::Pass(PassReason::Arguments);
    }
    hold_if(sync_target(fd_info, pending, Target::is_held))
}

/// Decides about a call whose path is argument `path` and whose flags are in a register.
fn open(fd_info: &mut FdInfo, pending: &PendingCall, directory: i32, path: usize) -> Decision {
    let Some(index) = args::open_flags_index(pending.call) else {
        return Decision::Ignore;
    };
    if ignores_sync(args::low(pending.argument(index)).into()) {
        return Decision::Ignore;
    }
    let target = path_target(fd_info, pending, directory, path, false);
    strip_open(
        target,
        CallChange { argument: Some((index, args::OPEN_SYNC_MASK.into())), ..opening() },
    )
}

/// Whether the sync flag has no effect: with `O_PATH` open(2) ignores it, and openat2(2)
/// refuses the combination.
fn ignores_sync(flags: u64) -> bool {
    flags & u64::from(OFlags::PATH.bits()) != 0
}

fn opening() -> CallChange {
    CallChange { opens: true, ..CallChange::default() }
}

fn strip_open(target: Option<Target>, change: CallChange) -> Decision {
    match target {
        Some(target) if target.is_held() => {
            Decision::Rewrite(CallChange { devices: vec![target.device], ..change })
        }
        Some(target) => Decision::Pass(target.why_passed()),
        None => Decision::Pass(PassReason::NoFile),
    }
}

fn open_by_handle(fd_info: &mut FdInfo, pending: &PendingCall) -> Decision {
    let directory = pending.descriptor(0);
    if ignores_sync(args::low(pending.argument(2)).into()) {
        return Decision::Ignore;
    }
    let target = if directory == rustix::fs::CWD.as_raw_fd() {
        fd_info.path(Start::new(pending.thread(), directory), &PathBuf::new())
    } else {
        fd_info.descriptor(pending.thread(), directory)
    };
    // The handle refers to any file on the descriptor's file system.
    let target = target.map(|target| {
        let verdict = RuleVerdict { file: target.verdict.system, ..target.verdict };
        Target { file_type: FileType::RegularFile, verdict, ..target }
    });
    strip_open(target, CallChange { argument: Some((2, args::OPEN_SYNC_MASK.into())), ..opening() })
}

/// Offsets and values in `struct open_how` (include/uapi/linux/openat2.h).
mod open_how {
    pub(super) const RESOLVE: u64 = 16;
    pub(super) const IN_ROOT: u64 = 0x10;
}

/// Decides about openat2(2). `struct open_how` begins with the flags, 64 bits.
fn openat2(fd_info: &mut FdInfo, pending: &PendingCall) -> Option<Decision> {
    let how = pending.argument(2);
    let memory = Memory::open(pending.thread(), false).ok()?;
    let old = memory.bytes::<8>(how).ok()?;
    let flags = u64::from_ne_bytes(old);
    let new = flags & !u64::from(args::OPEN_SYNC_MASK);
    if new == flags || ignores_sync(flags) {
        return None;
    }
    let resolve = memory.bytes::<8>(how.wrapping_add(open_how::RESOLVE)).ok()?;
    let in_root = u64::from_ne_bytes(resolve) & open_how::IN_ROOT != 0;
    let target = path_target(fd_info, pending, pending.descriptor(0), 1, in_root);
    let patch = Patch { address: how, old: old.to_vec(), new: new.to_ne_bytes().to_vec() };
    Some(strip_open(target, CallChange { patches: vec![patch], ..opening() }))
}

fn path_target(
    fd_info: &mut FdInfo,
    pending: &PendingCall,
    directory: i32,
    path: usize,
    is_root: bool,
) -> Option<Target> {
    let memory = Memory::open(pending.thread(), false).ok()?;
    let path = memory.path(pending.argument(path)).ok()?;
    fd_info.path(Start { thread: pending.thread(), directory, is_root }, &path)
}

fn transfer(fd_info: &mut FdInfo, pending: &PendingCall) -> Decision {
    // Other file types pass: on a directory the kernel refuses the flag.
    match sync_target(fd_info, pending, Target::is_held_file) {
        Ok(device) => Decision::Rewrite(CallChange {
            argument: Some((args::rwf_index(pending.abi), args::RWF_SYNC_MASK.into())),
            devices: vec![device],
            ..CallChange::default()
        }),
        Err(reason) => Decision::Pass(reason),
    }
}

/// Offsets and values in `struct iocb` (include/uapi/linux/aio_abi.h).
mod iocb {
    pub(super) const LENGTH: usize = 64;
    pub(super) const RW_FLAGS: usize = 12;
    pub(super) const OPCODE: usize = 16;
    pub(super) const DESCRIPTOR: usize = 20;
    /// Buffer, length and offset. The kernel refuses a sync in which they are not 0.
    pub(super) const TRANSFER: std::ops::Range<usize> = 24..48;
    pub(super) const PREAD: u16 = 0;
    pub(super) const PWRITE: u16 = 1;
    pub(super) const FSYNC: u16 = 2;
    pub(super) const FDSYNC: u16 = 3;
}

/// Decides about io_submit(2). A sync request becomes a transfer of no bytes, which completes
/// with the same event. A transfer loses its sync flag.
fn io_submit(fd_info: &mut FdInfo, pending: &PendingCall) -> Option<Decision> {
    let memory = Memory::open(pending.thread(), false).ok()?;
    let width = pending.abi.pointer_width();
    // The kernel takes a long of the caller's width, and refuses a negative count.
    let count = pending.argument(1);
    if count >> (8 * width - 1) != 0 {
        return None;
    }
    let requests = memory.pointers(pending.argument(2), count, width).ok()?;
    let mut change = CallChange::default();
    let mut passed = (count > requests.len() as u64).then_some(PassReason::Arguments);
    for address in requests {
        let Ok(request) = memory.bytes::<{ iocb::LENGTH }>(address) else {
            break;
        };
        match strip_request(fd_info, pending.thread(), address, &request) {
            Stripped::Plain => {}
            Stripped::Passes(reason) => passed = Some(reason),
            Stripped::Held(patch, device) => {
                change.patches.push(patch);
                change.devices.push(device);
            }
        }
    }
    match (change.patches.is_empty(), passed) {
        (true, None) => None,
        (true, Some(reason)) => Some(Decision::Pass(reason)),
        _ => Some(Decision::Rewrite(change)),
    }
}

enum Stripped {
    Plain,
    Passes(PassReason),
    Held(Patch, DeviceId),
}

fn strip_request(
    fd_info: &mut FdInfo,
    thread: u32,
    address: u64,
    request: &[u8; iocb::LENGTH],
) -> Stripped {
    let word = |at: usize| {
        u32::from_ne_bytes([request[at], request[at + 1], request[at + 2], request[at + 3]])
    };
    let opcode = u16::from_ne_bytes([request[iocb::OPCODE], request[iocb::OPCODE + 1]]);
    let syncs = matches!(opcode, iocb::FSYNC | iocb::FDSYNC);
    let flags = word(iocb::RW_FLAGS);
    if !syncs && flags & args::RWF_SYNC_MASK == 0 {
        return Stripped::Plain;
    }
    // The kernel refuses such a sync, but could do it as a transfer.
    if syncs && (flags != 0 || request[iocb::TRANSFER].iter().any(|byte| *byte != 0)) {
        return Stripped::Passes(PassReason::Arguments);
    }
    let target = fd_info.descriptor(thread, word(iocb::DESCRIPTOR).cast_signed());
    let Some(target) = target else { return Stripped::Passes(PassReason::NoFile) };
    if !target.is_held_file() {
        return Stripped::Passes(target.why_passed());
    }
    let (at, old, new) = if syncs {
        let empty = if target.readable { iocb::PREAD } else { iocb::PWRITE };
        (iocb::OPCODE, opcode.to_ne_bytes().to_vec(), empty.to_ne_bytes().to_vec())
    } else {
        let new = flags & !args::RWF_SYNC_MASK;
        (iocb::RW_FLAGS, flags.to_ne_bytes().to_vec(), new.to_ne_bytes().to_vec())
    };
    Stripped::Held(Patch { address: address + at as u64, old, new }, target.device)
}

fn unmount(pending: &PendingCall) -> Decision {
    // The old umount(2) of i386 has no flags.
    let has_flags =
        Call::Umount.number(pending.abi) == Some(pending.notification.number.cast_unsigned());
    let flags = if has_flags { pending.argument(1) } else { 0 };
    let how = match flags {
        _ if flags & MNT_DETACH != 0 => How::WithAllBelow,
        _ if flags & MNT_EXPIRE != 0 => How::IfExpired,
        _ => How::Alone,
    };
    let thread = pending.thread();
    let memory = Memory::open(thread, false);
    let path = memory.and_then(|memory| memory.path(pending.argument(0)));
    Decision::Unmount(path.ok().and_then(|path| Unmounting::of(thread, &path, how)))
}

/// Flags of umount2(2).
const MNT_DETACH: u64 = 2;
const MNT_EXPIRE: u64 = 4;

#[cfg(test)]
mod fuzz;
