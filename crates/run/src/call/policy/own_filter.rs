//! Filters that a program of the run installs for itself, beside the filter of the run.
//!
//! Of the answers of all filters the kernel takes the one of the highest precedence
//! (seccomp(2)): a notification precedes the stop of a tracer. A chain of filters has one
//! listener. A process with a filter cannot enter the strict mode.

use super::{Decision, PendingCall};
use crate::call::caller::Memory;
use crate::call::lookups::Lookups;
use crate::report::protocol::OwnFilter;
use synconce_filter::{Abi, Call, args};

/// `PR_SET_SECCOMP` has modes of its own (`SECCOMP_MODE_STRICT`).
const MODE_STRICT: u32 = 1;
/// The most instructions of a program (`BPF_MAXINSNS`).
const MOST: u64 = 4096;
/// The code of an instruction that returns its operand (`BPF_RET | BPF_K`).
const RETURN: u16 = 0x06;
/// `SECCOMP_RET_TRACE` and `SECCOMP_RET_ACTION_FULL`.
const RET_TRACE: u32 = 0x7ff0_0000;
const ACTION: u32 = 0xffff_0000;

/// Decides about a call by what it installs.
pub(super) fn decide(pending: &PendingCall, lookups: &impl Lookups) -> Decision {
    let word = |index| args::low(pending.argument(index));
    let (is_strict, flags, program) = match pending.call {
        Call::Seccomp => (word(0) == args::SET_MODE_STRICT, word(1), pending.argument(2)),
        _ => (word(1) == MODE_STRICT, 0, pending.argument(2)),
    };
    if is_strict {
        // seccomp(2) takes no argument for this mode. By a wrong one libseccomp finds out whether
        // the kernel has the call.
        let is_question = pending.call == Call::Seccomp && (flags != 0 || program != 0);
        return if is_question { Decision::Ignore } else { Decision::OwnFilter(OwnFilter::Strict) };
    }
    let memory = lookups.memory().ok();
    let has_trace = memory.map(|memory| has_trace(&memory, pending.abi, program));
    if has_trace == Some(None) {
        // The kernel reads the program before it looks for a listener: EFAULT. By such a call
        // libseccomp finds out which flags the kernel has.
        return Decision::Ignore;
    }
    if flags & args::NEW_LISTENER != 0 {
        return Decision::OwnFilter(OwnFilter::Listener);
    }
    let is_tracer = has_trace == Some(Some(true));
    if is_tracer { Decision::OwnFilter(OwnFilter::Tracer) } else { Decision::Ignore }
}

/// Whether an instruction of the program at `address` (struct sock_fprog) returns
/// `SECCOMP_RET_TRACE`. `None` if the program cannot be read.
fn has_trace(memory: &Memory, abi: Abi, address: u64) -> Option<bool> {
    let length = u64::from(u16::from_ne_bytes(memory.bytes(address).ok()?)).min(MOST);
    // The pointer follows the length at its own alignment.
    let width = abi.pointer_width();
    let [program] = memory.pointers(address + width, 1, width).ok()?[..] else { return None };
    let returns_trace = |index: u64| {
        let [low, high, _, _, operand @ ..] = memory.bytes::<8>(program + 8 * index).ok()?;
        let is_return = u16::from_ne_bytes([low, high]) == RETURN;
        Some(is_return && u32::from_ne_bytes(operand) & ACTION == RET_TRACE)
    };
    (0..length).map(returns_trace).try_fold(false, |any, one| Some(any | one?))
}
