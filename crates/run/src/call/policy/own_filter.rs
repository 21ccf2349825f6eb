//! Filters that a program of the run installs for itself, beside the filter of the run.
//!
//! Of the answers of all filters the kernel takes the one of the highest precedence
//! (seccomp(2)): a notification precedes the stop of a tracer. A chain of filters has one
//! listener. A process with a filter cannot enter the strict mode.

use super::{Decision, PendingCall};
use crate::call::caller::Memory;
use crate::call::lookups::Lookups;
use crate::report::protocol::OwnFilter;
use synconce_filter::{
    Abi, Call, FilterVerdict, HANDSHAKE_FLAGS, HANDSHAKE_SEALED_ERRNO, Instruction, Program,
    SeccompData, args, interpret,
};

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
    let (is_strict, flags, address) = match pending.call {
        Call::Seccomp => (word(0) == args::SET_MODE_STRICT, word(1), pending.argument(2)),
        _ => (word(1) == MODE_STRICT, 0, pending.argument(2)),
    };
    if is_strict {
        // seccomp(2) takes no argument for this mode. libseccomp passes a wrong argument to find
        // out whether the kernel has the call.
        let is_question = pending.call == Call::Seccomp && (flags != 0 || address != 0);
        return if is_question { Decision::Ignore } else { Decision::OwnFilter(OwnFilter::Strict) };
    }
    let memory = lookups.memory().ok();
    let program = memory.map(|memory| read_program(&memory, pending.abi, address));
    if program == Some(None) {
        // The kernel reads the program before it looks for a listener: EFAULT. libseccomp makes
        // such a call to find out which flags the kernel has.
        return Decision::Ignore;
    }
    if flags & args::NEW_LISTENER != 0 {
        return Decision::OwnFilter(OwnFilter::Listener);
    }
    match program.flatten() {
        Some(program) if has_trace(&program) => Decision::OwnFilter(OwnFilter::Tracer),
        Some(program) if drops_syncs(&program, pending.abi) => {
            Decision::OwnFilter(OwnFilter::Drops)
        }
        _ => Decision::Ignore,
    }
}

/// Reads the program at `address` (struct sock_fprog). `None` if the program cannot be read.
fn read_program(memory: &Memory, abi: Abi, address: u64) -> Option<Program> {
    let length = u64::from(u16::from_ne_bytes(memory.bytes(address).ok()?)).min(MOST);
    // The pointer follows the length at its own alignment.
    let width = abi.pointer_width();
    let [program] = memory.pointers(address + width, 1, width).ok()?[..] else { return None };
    let instruction = |index: u64| {
        let [low, high, jt, jf, k @ ..] = memory.bytes::<8>(program + 8 * index).ok()?;
        let (code, k) = (u16::from_ne_bytes([low, high]), u32::from_ne_bytes(k));
        Some(Instruction { code, jt, jf, k })
    };
    (0..length).map(instruction).collect::<Option<_>>().map(Program::from_instructions)
}

/// Whether an instruction returns `SECCOMP_RET_TRACE`.
fn has_trace(program: &Program) -> bool {
    let is_trace = |one: &Instruction| one.code == RETURN && one.k & ACTION == RET_TRACE;
    program.instructions().iter().any(is_trace)
}

/// Whether the program answers fsync(2) with success, and is no sealed program of synconce, whose
/// user commits what it holds. An answer without a listener precedes that of the run.
fn drops_syncs(program: &Program, abi: Abi) -> bool {
    let answer = |call: Call, args| {
        let nr = call.numbers(abi).next()?.cast_signed();
        let data = SeccompData { nr, arch: abi.audit_arch(), instruction_pointer: 0, args };
        interpret(program, &data).ok()
    };
    let mut question = [u64::from(u32::MAX), 0, 0, 0, 0, 0];
    question[args::sync_file_range_flags_index(abi)] = HANDSHAKE_FLAGS.into();
    answer(Call::Fsync, [0; 6]) == Some(FilterVerdict::Errno(0))
        && answer(Call::SyncFileRange, question)
            != Some(FilterVerdict::Errno(HANDSHAKE_SEALED_ERRNO))
}
