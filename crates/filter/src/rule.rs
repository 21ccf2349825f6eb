//! The decision about a call, as a tree of tests on its arguments.

use crate::abi::Abi;
use crate::args;
use crate::call::Call;
use crate::sealed::{SEALED, SealedAnswer};
use crate::spec::{HANDSHAKE_FLAGS, HANDSHAKE_SEALED_ERRNO, HeldAnswer, Spec};

/// The result of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The kernel does the call.
    Allow,
    /// The kernel skips the call, which returns this errno; 0 is success.
    Errno(u16),
    /// The call waits until a supervisor has answered.
    Notify,
}

/// One half of the argument with this index: a program tests 32 bits at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Low(usize),
    High(usize),
}

/// A test of one half of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Any of these bits is set.
    AnyBit(u32),
    /// The half has this value.
    Equal(u32),
    /// The half has this value in the bits of the mask.
    MaskedEqual { mask: u32, value: u32 },
}

/// A decision about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A result.
    Done(Action),
    /// Another test.
    Test { word: Word, condition: Condition, yes: Box<Rule>, no: Box<Rule> },
}

use Action::{Allow, Errno, Notify};
use Condition::{AnyBit, Equal, MaskedEqual};

const ALLOW: Rule = Rule::Done(Allow);
const SIGN_BIT: u32 = 1 << 31;

/// Returns a rule that tests the low half of one argument.
fn test(argument: usize, condition: Condition, yes: Rule, no: Rule) -> Rule {
    test_word(Word::Low(argument), condition, yes, no)
}

fn test_word(word: Word, condition: Condition, yes: Rule, no: Rule) -> Rule {
    Rule::Test { word, condition, yes: Box::new(yes), no: Box::new(no) }
}

/// Returns the rule for `call` made through `abi`.
pub(crate) fn rule(spec: &Spec, call: Call, abi: Abi) -> Rule {
    match spec.answer {
        HeldAnswer::Supervised => supervised(spec, call, abi),
        HeldAnswer::Sealed => sealed(spec, call, abi),
    }
}

fn supervised(spec: &Spec, call: Call, abi: Abi) -> Rule {
    let notify = Rule::Done(Notify);
    let when = |argument, condition| test(argument, condition, Rule::Done(Notify), ALLOW);
    match call {
        Call::Fsync | Call::Fdatasync | Call::Syncfs => unless_negative(notify),
        Call::Sync | Call::Openat2 | Call::IoSubmit | Call::Umount => notify,
        Call::Msync => when(2, AnyBit(args::MS_SYNC)),
        Call::SyncFileRange => sync_file_range(abi, notify.clone(), notify),
        Call::Open | Call::Openat | Call::OpenByHandleAt => {
            args::open_flags_index(call).map_or(ALLOW, |at| when(at, AnyBit(args::OPEN_SYNC_MASK)))
        }
        Call::Preadv2 | Call::Pwritev2 => when(args::rwf_index(abi), AnyBit(args::RWF_SYNC_MASK)),
        Call::IoUringSetup if spec.io_uring_pass => ALLOW,
        Call::IoUringSetup => notify,
        Call::Seccomp => one_of(0, &[args::SET_MODE_STRICT, args::SET_MODE_FILTER], notify),
        Call::Prctl => when(0, Equal(args::PR_SET_SECCOMP)),
        Call::Ioctl => one_of(1, &args::SYNC_IOCTLS, notify),
        Call::Reboot => one_of(args::REBOOT_COMMAND_INDEX, &args::ENDS_OF_MACHINE, notify),
        Call::Quotactl | Call::QuotactlFd => {
            args::quota_command_index(call).map_or(ALLOW, |at| when(at, is_quota_sync()))
        }
    }
}

fn sealed(spec: &Spec, call: Call, abi: Abi) -> Rule {
    let held = Rule::Done(Errno(0));
    let Some((_, answer)) = SEALED.iter().find(|(calls, _)| calls.contains(&call)) else {
        return ALLOW;
    };
    match answer {
        SealedAnswer::Success if call == Call::Sync => held,
        SealedAnswer::Success => unless_negative(held),
        SealedAnswer::SuccessIfSync => sealed_msync(spec),
        SealedAnswer::SuccessOrHandshake => {
            sync_file_range(abi, sealed_handshake(spec, abi), sealed_range(abi))
        }
        SealedAnswer::Refusal(_) if spec.io_uring_pass => ALLOW,
        SealedAnswer::Refusal(errno) => Rule::Done(Errno(*errno)),
    }
}

/// Returns the rule that gives `answer`, but allows a call with a negative descriptor: the kernel
/// returns `EBADF`.
fn unless_negative(answer: Rule) -> Rule {
    test(0, AnyBit(SIGN_BIT), ALLOW, answer)
}

/// Returns the rule of sync_file_range(2): `handshake` for [`HANDSHAKE_FLAGS`] with descriptor -1,
/// `answer` for a descriptor that is not negative. The kernel gets any other call.
fn sync_file_range(abi: Abi, handshake: Rule, answer: Rule) -> Rule {
    let flags = args::sync_file_range_flags_index(abi);
    let asks = test(flags, Equal(HANDSHAKE_FLAGS), handshake, ALLOW);
    let negative = test(0, Equal(u32::MAX), asks, ALLOW);
    test(0, AnyBit(SIGN_BIT), negative, answer)
}

/// Returns the rule of the handshake in a sealed program. The errno is the byte of the identity
/// that the offset selects, from 1, or [`HANDSHAKE_SEALED_ERRNO`] for any other offset.
fn sealed_handshake(spec: &Spec, abi: Abi) -> Rule {
    let sealed = Rule::Done(Errno(HANDSHAKE_SEALED_ERRNO));
    let [[offset, _], _] = range_words(abi);
    let answer = |byte: u8| Rule::Done(Errno(u16::from(byte)));
    let bytes = (1..).zip(spec.identity.iter().flatten());
    bytes.fold(sealed, |no, (at, byte)| test_word(offset, Equal(at), answer(*byte), no))
}

/// Returns the low and the high half of the offset and of the length of sync_file_range(2), in
/// the order of [`args::sync_file_range`].
fn range_words(abi: Abi) -> [[Word; 2]; 2] {
    match abi {
        Abi::I386 => [[Word::Low(1), Word::Low(2)], [Word::Low(3), Word::Low(4)]],
        Abi::Arm => [[Word::Low(2), Word::Low(3)], [Word::Low(4), Word::Low(5)]],
        Abi::X86_64 | Abi::X32 | Abi::Aarch64 => [1, 2].map(|at| [Word::Low(at), Word::High(at)]),
    }
}

/// Returns the rule for the range of a sealed call. The kernel gets each call that it refuses with
/// `EINVAL`: unknown flags, a negative offset or length, an end past `i64::MAX`
/// (`sync_file_range`, fs/sync.c).
///
/// A program cannot add 64-bit numbers to find such an end. So the kernel also gets each call with
/// an offset of 2^62 or more, where no file has data, and each call with a length of 2^62 or more
/// unless the offset is 0. A call with such a length really syncs the rest of the file.
fn sealed_range(abi: Abi) -> Rule {
    const HUGE_BIT: u32 = 1 << 30;
    let flags = args::sync_file_range_flags_index(abi);
    let [offset, length] = range_words(abi);
    let held = Rule::Done(Errno(0));
    let from_start = offset
        .into_iter()
        .fold(held.clone(), |rule, half| test_word(half, AnyBit(u32::MAX), ALLOW, rule));
    let huge_length = test_word(length[1], AnyBit(HUGE_BIT), from_start, held);
    let length = test_word(length[1], AnyBit(SIGN_BIT), ALLOW, huge_length);
    let range = test_word(offset[1], AnyBit(SIGN_BIT | HUGE_BIT), ALLOW, length);
    test(flags, AnyBit(!args::SYNC_FILE_RANGE_MASK), ALLOW, range)
}

/// Returns the rule of a sealed msync(2): success for `MS_SYNC`, alone or with `MS_INVALIDATE`, at
/// an aligned address. The kernel gets any other call, and returns its error. A program cannot see
/// whether the range is mapped: success also replaces the kernel's `ENOMEM`.
fn sealed_msync(spec: &Spec) -> Rule {
    let aligned = test(0, AnyBit(spec.page_size - 1), ALLOW, Rule::Done(Errno(0)));
    let syncs = MaskedEqual { mask: !args::MS_INVALIDATE, value: args::MS_SYNC };
    test(2, syncs, aligned, ALLOW)
}

fn is_quota_sync() -> Condition {
    MaskedEqual {
        mask: u32::MAX << args::QUOTA_COMMAND_SHIFT,
        value: args::Q_SYNC << args::QUOTA_COMMAND_SHIFT,
    }
}

fn one_of(argument: usize, values: &[u32], answer: Rule) -> Rule {
    values.iter().rfold(ALLOW, |no, &value| test(argument, Equal(value), answer.clone(), no))
}
