//! Tests the programs in the kernel: each program is installed in a child process. The child makes
//! the calls that the interpreter evaluates.
//!
//! For a notification without a listener the kernel returns `ENOSYS`
//! (`seccomp_do_user_notification`, kernel/seccomp.c). Some calls fail with `ENOSYS` anyway,
//! such as x32 calls on most kernels. Therefore each program is also installed with its return
//! values replaced by errnos that no call returns.

use crate::child::{Question, ask};
use crate::common::{cases, data, expected, range_flags_at, skipped, specs, usable_abis};
use std::fs::File;
use std::os::fd::AsRawFd;
use synconce_filter::{
    Abi, Call, FilterVerdict, HANDSHAKE_FLAGS, HeldAnswer, Instruction, Program, interpret,
    native_abis, program,
};

const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7FFF_0000;
const NOTIFY: u32 = 0x7FC0_0000;
const ERRNO: u32 = 0x5_0000;
/// Errnos that no call returns. seccomp returns errnos up to 4095.
const MARK_OF_NOTIFY: u16 = 2000;
const MARK_OF_ERRNO: u16 = 2100;

/// Returns questions for every call and ABI that are harmless under a program.
fn questions(abis: &[Abi]) -> Vec<(Call, Question)> {
    let mut questions = Vec::new();
    for &abi in abis {
        for &call in Call::ALL {
            for number in call.numbers(abi) {
                let ask = |args| (call, Question { abi, number, args });
                questions.extend(cases(call, abi, 0).into_iter().map(ask));
            }
        }
    }
    questions
}

fn plain(questions: &[(Call, Question)]) -> Vec<Question> {
    questions.iter().map(|(_, question)| *question).collect()
}

/// Returns `program` with every verdict except ALLOW replaced by a distinct errno.
fn marked(program: &Program) -> Program {
    let mark = |instruction: &Instruction| {
        let k = match (instruction.code, instruction.k) {
            (RETURN, NOTIFY) => ERRNO | u32::from(MARK_OF_NOTIFY),
            (RETURN, errno) if errno != ALLOW => errno + u32::from(MARK_OF_ERRNO),
            (_, unchanged) => unchanged,
        };
        Instruction { k, ..*instruction }
    };
    Program::from_instructions(program.instructions().iter().map(mark).collect())
}

/// Returns the kernel's answer under the marked program, or `None` if the call is allowed.
fn mark(verdict: FilterVerdict) -> Option<i64> {
    match verdict {
        FilterVerdict::Notify => Some(-i64::from(MARK_OF_NOTIFY)),
        FilterVerdict::Errno(errno) => Some(-i64::from(MARK_OF_ERRNO + errno)),
        FilterVerdict::Allow | FilterVerdict::Other(_) => None,
    }
}

/// Returns the kernel's answer under the program itself, or `None` if the call is allowed.
fn answer(verdict: FilterVerdict) -> Option<i64> {
    match verdict {
        FilterVerdict::Notify => Some(-i64::from(libc::ENOSYS)),
        FilterVerdict::Errno(errno) => Some(-i64::from(errno)),
        FilterVerdict::Allow | FilterVerdict::Other(_) => None,
    }
}

fn compare(change: fn(&Program) -> Program, wanted: fn(FilterVerdict) -> Option<i64>) {
    let abis = usable_abis();
    // Without a program the kernel would sync.
    let not_sync = |(call, _): &(Call, Question)| *call != Call::Sync;
    let bare_questions: Vec<_> = questions(&abis).into_iter().filter(not_sync).collect();
    let bare = ask(None, &plain(&bare_questions)).expect("a child without a program");
    let bare_answer = |question: &(Call, Question)| {
        bare_questions.iter().position(|other| other == question).map(|at| bare[at])
    };
    let questions = questions(&abis);
    let bare: Vec<Option<i64>> = questions.iter().map(bare_answer).collect();
    assert!(questions.len() > 100, "only {} questions", questions.len());
    for spec in specs() {
        let program = program(&spec, native_abis());
        let answers =
            ask(Some(&change(&program)), &plain(&questions)).expect("a child with a program");
        for ((question, &found), bare) in questions.iter().zip(&answers).zip(&bare) {
            let (call, Question { abi, number, args }) = *question;
            let verdict = interpret(&program, &data(abi, number, args)).expect("a valid program");
            assert_eq!(verdict, expected(&spec, abi, call, &args));
            let wanted = wanted(verdict).or(*bare).expect("sync is never allowed");
            assert_eq!(found, wanted, "{question:x?} is {verdict:?} under {spec:?}");
        }
    }
}

#[test]
fn the_kernel_and_the_interpreter_agree_on_every_verdict() {
    compare(marked, mark);
}

#[test]
fn a_process_under_a_program_sees_the_answers_that_were_meant() {
    compare(Program::clone, answer);
}

#[test]
fn a_sealed_range_is_refused_as_the_kernel_refuses_it() {
    const EINVAL: i64 = -(libc::EINVAL as i64);
    let file = File::open("/proc/self/exe").expect("this program");
    let ends = [0, 1, 4096, 1 << 40, 1 << 62, i64::MAX - 4096, i64::MAX, i64::MIN, -4096, -1];
    let sealed = specs().into_iter().find(|spec| spec.answer == HeldAnswer::Sealed).expect("one");
    for abi in usable_abis() {
        let number = Call::SyncFileRange.number(abi).expect("every ABI has it");
        let ask_range = |(offset, length, flags): (i64, i64, u64)| {
            let fd = file.as_raw_fd() as u64;
            let (offset, length) = (offset.cast_unsigned(), length.cast_unsigned());
            let args = match abi {
                Abi::I386 => [fd, offset, offset >> 32, length, length >> 32, flags],
                _ => [fd, offset, length, flags, 0, 0],
            };
            Question { abi, number, args }
        };
        let ranges =
            ends.iter().flat_map(|&offset| ends.iter().map(move |&length| (offset, length)));
        let all =
            ranges.flat_map(|(offset, length)| [0, 7, 8].map(|flags| (offset, length, flags)));
        let questions: Vec<_> = all.map(ask_range).collect();
        let bare = ask(None, &questions).expect("a child without a program");
        let program = program(&sealed, native_abis());
        let held = ask(Some(&program), &questions).expect("a child with a program");
        if bare.iter().all(|&answer| answer == -i64::from(libc::ENOSYS)) {
            skipped("ranges in the kernel", &format!("{abi:?}"));
            continue;
        }
        assert!(bare.contains(&0) && bare.contains(&EINVAL), "{bare:?}");
        for ((question, bare), held) in questions.iter().zip(bare).zip(held) {
            assert_eq!(held, bare, "{question:x?}");
        }
    }
}

#[test]
fn without_a_hold_the_kernel_answers_the_handshake_with_ebadf() {
    let ask_kernel = |abi: Abi| {
        let mut args = [u64::from(u32::MAX), 0, 0, 0, 0, 0];
        args[range_flags_at(abi)] = u64::from(HANDSHAKE_FLAGS);
        let call = Call::SyncFileRange;
        let number = call.number(abi).expect("every ABI has it");
        ask(None, &[Question { abi, number, args }]).expect("a child without a program")
    };
    for abi in usable_abis() {
        let wanted: &[i32] = match abi {
            // Most kernels are built without x32.
            Abi::X32 => &[libc::EBADF, libc::ENOSYS],
            _ => &[libc::EBADF],
        };
        let found = ask_kernel(abi)[0];
        assert!(wanted.iter().any(|&errno| found == -i64::from(errno)), "{found} on {abi:?}");
    }
}

#[test]
fn the_kernel_takes_every_program_of_every_set_of_abis() {
    for spec in specs() {
        for set in crate::common::abi_sets() {
            let installed = ask(Some(&program(&spec, &set)), &[]);
            assert_eq!(installed, Ok(vec![]), "{spec:?} {set:?}");
        }
    }
}
