//! Calls that open a file whose writes sync (`O_SYNC`, `O_DSYNC`).

use super::{CallChange, Decided, Decision, Patch, PendingCall};
use crate::call::caller::Memory;
use crate::call::fd_info::LookupError;
use crate::call::fd_info::Target;
use crate::call::lookups::Lookups;
use crate::call::paths::Start;
use crate::call::rules::RuleVerdict;
use rustix::fs::{CWD, FileType, OFlags};
use std::os::fd::AsRawFd;
use std::path::Path;
use synconce_filter::args;

/// Decides about a call whose path is argument `path` and whose flags are in a register.
pub(super) fn open(
    pending: &PendingCall,
    lookups: &impl Lookups,
    directory: i32,
    path: usize,
) -> Decided {
    let Some(index) = args::open_flags_index(pending.call) else {
        return Ok(Decision::Ignore);
    };
    if ignores_sync(args::low(pending.argument(index)).into()) {
        return Ok(Decision::Ignore);
    }
    let (memory, start) = (lookups.memory()?, Start::new(pending.thread(), directory));
    let target = path_target(lookups, &memory, pending.argument(path), start)?;
    Ok(strip_open(&target, in_register(index)))
}

/// Whether the sync flag has no effect: with `O_PATH` open(2) ignores it, and openat2(2)
/// refuses the combination.
fn ignores_sync(flags: u64) -> bool {
    flags & u64::from(OFlags::PATH.bits()) != 0
}

/// Returns the change of an open whose flags are in the argument register `index`.
fn in_register(index: usize) -> CallChange {
    CallChange { argument: Some((index, args::OPEN_SYNC_MASK.into())), ..CallChange::default() }
}

fn strip_open(target: &Target, change: CallChange) -> Decision {
    if !target.is_held() {
        return Decision::Pass(target.why_passed());
    }
    Decision::Rewrite(CallChange { opens: true, devices: vec![target.device], ..change })
}

pub(super) fn open_by_handle(pending: &PendingCall, lookups: &mut impl Lookups) -> Decided {
    let directory = pending.descriptor(0);
    if ignores_sync(args::low(pending.argument(2)).into()) {
        return Ok(Decision::Ignore);
    }
    let target = if directory == CWD.as_raw_fd() {
        lookups.path(Start::new(pending.thread(), directory), Path::new(""))?
    } else {
        lookups.descriptor(directory)?
    };
    // The handle refers to any file on the descriptor's file system.
    let verdict = RuleVerdict { file: target.verdict.system, ..target.verdict };
    let any_file = Target { file_type: FileType::RegularFile, verdict, ..target };
    Ok(strip_open(&any_file, in_register(2)))
}

/// Offsets and values in `struct open_how` (include/uapi/linux/openat2.h).
mod open_how {
    pub(super) const RESOLVE: u64 = 16;
    pub(super) const IN_ROOT: u64 = 0x10;
}

/// Decides about openat2(2). `struct open_how` begins with the flags, 64 bits.
pub(super) fn openat2(pending: &PendingCall, lookups: &impl Lookups) -> Decided {
    let how = pending.argument(2);
    let Ok(memory) = lookups.memory() else { return Ok(Decision::Ignore) };
    let words = [how, how.wrapping_add(open_how::RESOLVE)].map(|at| memory.bytes::<8>(at));
    let [Ok(flags), Ok(resolve)] = words.map(|word| word.map(u64::from_ne_bytes)) else {
        return Ok(Decision::Ignore);
    };
    let new = flags & !u64::from(args::OPEN_SYNC_MASK);
    if new == flags || ignores_sync(flags) {
        return Ok(Decision::Ignore);
    }
    let is_root = resolve & open_how::IN_ROOT != 0;
    let start = Start { thread: pending.thread(), directory: pending.descriptor(0), is_root };
    let target = path_target(lookups, &memory, pending.argument(1), start)?;
    let [old, new] = [flags, new].map(|flags| flags.to_ne_bytes().to_vec());
    let patches = vec![Patch { address: how, old, new }];
    Ok(strip_open(&target, CallChange { patches, ..CallChange::default() }))
}

/// Returns what the path at `address` of `memory`, resolved from `start`, leads to.
fn path_target(
    lookups: &impl Lookups,
    memory: &Memory,
    address: u64,
    start: Start,
) -> Result<Target, LookupError> {
    lookups.path(start, &memory.path(address).map_err(|_| LookupError::NoFile)?)
}
