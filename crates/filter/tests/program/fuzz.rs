//! Compares the interpreter with the kernel, on random calls and programs.
//!
//! No call is ever done: in the programs that a child installs, every return value is a
//! distinct errno, which shows the verdict, and only the child's exit is allowed. The
//! interpreter gets the same calls.

use crate::child::{Question, ask};
use crate::common::{Random, cases, data, expected, specs, usable_abis};
use std::collections::HashMap;
use synconce_filter::{
    Abi, Call, FilterVerdict, Instruction, InterpretError, Program, interpret, native_abis, program,
};
use synconce_fuzz::arbitrary::{self, Arbitrary};
use synconce_sys::questions::REFUSED;

const LOAD: u16 = 0x20;
const IMMEDIATE: u16 = 0x00;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;
const ALLOW: u32 = 0x7FFF_0000;
const NOTIFY: u32 = 0x7FC0_0000;
const ERRNO: u32 = 0x5_0000;
/// The largest errno that seccomp returns.
const ERRNO_MASK: u32 = 0xFFF;

/// Errnos that stand for verdicts.
const MARK_OF_ALLOW: u16 = 2000;
const MARK_OF_NOTIFY: u16 = 2001;
const MARK_OF_ERRNO: u16 = 2100;

fn mark(verdict: FilterVerdict) -> u16 {
    match verdict {
        FilterVerdict::Allow => MARK_OF_ALLOW,
        FilterVerdict::Notify => MARK_OF_NOTIFY,
        FilterVerdict::Errno(errno) => MARK_OF_ERRNO + errno,
        FilterVerdict::Other(value) => panic!("no program of ours returns {value:#x}"),
    }
}

/// Returns `program` with every return value replaced by its mark.
fn marked(program: &Program) -> Vec<Instruction> {
    let mark = |instruction: &Instruction| {
        let verdict = match (instruction.code, instruction.k) {
            (RETURN, ALLOW) => FilterVerdict::Allow,
            (RETURN, NOTIFY) => FilterVerdict::Notify,
            (RETURN, k) if k & !0xFFFF == ERRNO => FilterVerdict::Errno((k & 0xFFFF) as u16),
            (RETURN, k) => FilterVerdict::Other(k),
            _ => return *instruction,
        };
        Instruction { k: ERRNO | u32::from(mark(verdict)), ..*instruction }
    };
    program.instructions().iter().map(mark).collect()
}

/// Prepends instructions that allow only the child's exit.
fn with_exit(instructions: &[Instruction]) -> Program {
    let new = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let mut all = vec![
        new(LOAD, 0, 0, 4),
        new(EQUAL, 0, 3, native_abis()[0].audit_arch()),
        new(LOAD, 0, 0, 0),
        new(EQUAL, 0, 1, libc::SYS_exit_group as u32),
        new(RETURN, 0, 0, ALLOW),
        // The accumulator is 0 at the start.
        new(IMMEDIATE, 0, 0, 0),
    ];
    all.extend_from_slice(instructions);
    Program::from_instructions(all)
}

/// uretprobe(2) and uprobe(2) of x86_64, which bypass seccomp (Linux 6.14 and 6.18,
/// kernel/seccomp.c). Without a probe uretprobe raises SIGILL, and uprobe returns ENXIO.
const UNSEEN: [u32; 2] = [335, 336];

/// Whether the program, and not the kernel itself, answers the call.
fn is_answered_by_the_program(question: &Question) -> bool {
    // A number belongs to the entry point, whatever the question's ABI is.
    let by_entry = |abi: Abi| question.abi.audit_arch() == abi.audit_arch();
    let is_exit = i64::from(question.number) == libc::SYS_exit_group && by_entry(native_abis()[0]);
    let is_unseen = by_entry(Abi::X86_64) && UNSEEN.contains(&question.number);
    !(is_exit || is_unseen)
}

/// Generates questions about policies.
struct Questions {
    abis: Vec<Abi>,
    cases: HashMap<(Abi, Call), Vec<[u64; 6]>>,
}

impl Questions {
    fn new() -> Self {
        let abis = usable_abis();
        let keys = abis.iter().flat_map(|&abi| Call::ALL.iter().map(move |&call| (abi, call)));
        let cases = keys.map(|(abi, call)| ((abi, call), cases(call, abi, 0))).collect();
        Self { abis, cases }
    }

    /// Returns a question about one of the calls, or about a similar call.
    fn make(&self, random: &mut Random) -> Question {
        let abi = *pick(&self.abis, random);
        let call = *pick(Call::ALL, random);
        let known = pick_number(call, abi, random);
        let number = match random.word() % 8 {
            0 => random.word(),
            1 => random.word() % 600,
            2 => known.wrapping_add(random.word() % 3).wrapping_sub(1),
            3 => known ^ (1 << (random.word() % 32)),
            _ => known,
        };
        let mut args = *pick(&self.cases[&(abi, call)], random);
        for arg in &mut args {
            *arg = match random.word() % 8 {
                0 => random.next(),
                1 => *arg ^ (1 << (random.word() % 64)),
                2 => *arg | (random.next() & !0xFFFF_FFFF),
                3 => i64::from(random.word().cast_signed()).cast_unsigned(),
                _ => *arg,
            };
        }
        if abi.is_32_bit() {
            args.iter_mut().for_each(|arg| *arg &= 0xFFFF_FFFF);
        }
        Question { abi, number, args }
    }
}

/// Returns one of the numbers of `call`, or 0 if it has none.
fn pick_number(call: Call, abi: Abi, random: &mut Random) -> u32 {
    let numbers: Vec<u32> = call.numbers(abi).collect();
    if numbers.is_empty() { 0 } else { *pick(&numbers, random) }
}

fn pick<'a, T>(from: &'a [T], random: &mut Random) -> &'a T {
    &from[random.word() as usize % from.len()]
}

/// A policy, and the seed of its questions.
#[derive(Debug, Arbitrary)]
struct Batch {
    spec: u8,
    seed: u64,
}

#[test]
fn every_verdict_on_a_random_call_agrees_with_the_kernel_and_the_policy() {
    let source = Questions::new();
    let specs = specs();
    synconce_fuzz::values("verdicts", 100, |batch: Batch| {
        let spec = specs[usize::from(batch.spec) % specs.len()];
        let program = program(&spec, native_abis());
        let mut random = Random(batch.seed | 1);
        let mut questions: Vec<Question> = (0..2048).map(|_| source.make(&mut random)).collect();
        questions.retain(is_answered_by_the_program);
        let installed = with_exit(&marked(&program));
        let answers = ask(Some(&installed), &questions).expect("a child with a program");
        for (question, answer) in questions.iter().zip(answers) {
            let data = data(question.abi, question.number, question.args);
            let verdict = interpret(&program, &data).expect("a valid program");
            assert_eq!(answer, -i64::from(mark(verdict)), "{question:x?} under {spec:?}");
            let call = Call::identify(data.arch, data.nr);
            let policy = call.map_or(FilterVerdict::Allow, |(abi, call)| {
                expected(&spec, abi, call, &question.args)
            });
            assert_eq!(verdict, policy, "{question:x?} under {spec:?}");
        }
    });
}

/// A piece of a random program. Jumps skip whole pieces.
#[derive(Debug, Arbitrary)]
enum Piece {
    Load(u8),
    Arithmetic(Operation, u32),
    ArithmeticByLittle(Operation, u8),
    Branch(Test, u32, u8, u8),
    BranchOnLoaded(u8, Test, u8, u8),
    Always(u8),
    Return(u16),
    ReturnAccumulator,
    Other { code: u16, k: u32 },
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Operation {
    Immediate = 0x00,
    Length = 0x80,
    Add = 0x04,
    Subtract = 0x14,
    Multiply = 0x24,
    Divide = 0x34,
    Or = 0x44,
    And = 0x54,
    ShiftLeft = 0x64,
    ShiftRight = 0x74,
    Negate = 0x84,
    Modulo = 0x94,
    Xor = 0xA4,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Test {
    Equal = 0x15,
    Greater = 0x25,
    AtLeast = 0x35,
    AnyBit = 0x45,
}

/// Returns the offset of a word of `struct seccomp_data` whose value the test knows: not the
/// address of the calling instruction, at 8 and 12.
fn known_word(at: u8) -> u32 {
    let word = u32::from(at) % 16;
    if matches!(word, 2 | 3) { 0 } else { word * 4 }
}

impl Piece {
    /// Returns the instructions, with the number of pieces to skip in place of jump offsets.
    fn instructions(&self) -> Vec<Instruction> {
        let new = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let skips = |pieces: u8| pieces % 5;
        match *self {
            Self::Load(at) => vec![new(LOAD, 0, 0, known_word(at))],
            Self::Arithmetic(operation, k) => vec![new(operation as u16, 0, 0, k)],
            Self::ArithmeticByLittle(operation, k) => {
                vec![new(operation as u16, 0, 0, u32::from(k % 40))]
            }
            Self::Branch(test, k, yes, no) => vec![new(test as u16, skips(yes), skips(no), k)],
            Self::BranchOnLoaded(at, test, yes, no) => {
                let k = u32::from(at);
                vec![new(LOAD, 0, 0, known_word(at)), new(test as u16, skips(yes), skips(no), k)]
            }
            Self::Always(pieces) => vec![new(0x05, 0, 0, skips(pieces).into())],
            Self::Return(errno) => vec![new(RETURN, 0, 0, ERRNO | u32::from(errno) & ERRNO_MASK)],
            Self::ReturnAccumulator => vec![
                new(Operation::And as u16, 0, 0, ERRNO_MASK),
                new(Operation::Or as u16, 0, 0, ERRNO),
                new(RETURN_A, 0, 0, 0),
            ],
            // No jump into the middle of a piece, and no other return value.
            Self::Other { code, .. } if matches!(code & 7, 5 | 6) => Vec::new(),
            Self::Other { code: LOAD, .. } => Vec::new(),
            Self::Other { code, k } => vec![new(code, 0, 0, k)],
        }
    }
}

/// Returns the program of `pieces`, followed by a return.
fn assembled(pieces: &[Piece]) -> Vec<Instruction> {
    let mut parts: Vec<Vec<Instruction>> = pieces.iter().map(Piece::instructions).collect();
    parts.push(Piece::Return(1).instructions());
    let lengths: Vec<usize> = parts.iter().map(Vec::len).collect();
    let distance =
        |from: usize, pieces: usize| -> usize { lengths.iter().skip(from + 1).take(pieces).sum() };
    let mut all = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        for instruction in part {
            let mut instruction = *instruction;
            instruction.jt = distance(at, instruction.jt.into()) as u8;
            instruction.jf = distance(at, instruction.jf.into()) as u8;
            if instruction.code == 0x05 {
                instruction.k = distance(at, instruction.k as usize) as u32;
            }
            all.push(instruction);
        }
    }
    all
}

#[derive(Debug, Arbitrary)]
struct Experiment {
    pieces: Vec<Piece>,
    questions: [(i32, [u64; 6]); 4],
}

#[test]
fn a_random_program_that_the_kernel_takes_means_the_same_to_the_interpreter() {
    let abis = usable_abis();
    let mut compared = 0;
    synconce_fuzz::values("programs", 1_000, |experiment: Experiment| {
        let program = with_exit(&assembled(&experiment.pieces));
        let questions = experiment.questions.iter().zip(abis.iter().cycle());
        let mut questions: Vec<Question> = questions
            .map(|(&(number, args), &abi)| {
                let mask = if abi.is_32_bit() { 0xFFFF_FFFF } else { u64::MAX };
                let args = args.map(|arg| arg & mask);
                Question { abi, number: number.cast_unsigned(), args }
            })
            .collect();
        questions.retain(is_answered_by_the_program);
        let answers = match ask(Some(&program), &questions) {
            Ok(answers) => answers,
            // The program is invalid.
            Err(error) if error == REFUSED => return,
            Err(error) => panic!("{error}:\n{program}"),
        };
        for (question, answer) in questions.iter().zip(answers) {
            let data = data(question.abi, question.number, question.args);
            match interpret(&program, &data) {
                Ok(FilterVerdict::Errno(errno)) => {
                    assert_eq!(answer, -i64::from(errno), "{question:x?} of\n{program}");
                    compared += 1;
                }
                Err(InterpretError::Unsupported { .. }) => {}
                other => panic!("{other:?} for {question:x?} of\n{program}"),
            }
        }
    });
    assert!(compared > 500, "the kernel took too few programs: {compared} answers");
}
