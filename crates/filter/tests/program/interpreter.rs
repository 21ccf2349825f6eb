//! The interpreter must refuse what the kernel refuses, and always terminate.

use crate::common::{Random, data};
use synconce_filter::{
    Abi, FilterVerdict, Instruction, InterpretError, Program, SeccompData, interpret, trace,
};

fn of(instructions: &[(u16, u8, u8, u32)]) -> Program {
    let build = |&(code, jt, jf, k): &(u16, u8, u8, u32)| Instruction { code, jt, jf, k };
    Program::from_instructions(instructions.iter().map(build).collect())
}

fn run(instructions: &[(u16, u8, u8, u32)]) -> Result<FilterVerdict, InterpretError> {
    interpret(&of(instructions), &SeccompData::default())
}

#[test]
fn a_program_that_ends_without_a_return_is_an_error() {
    assert_eq!(run(&[]), Err(InterpretError::OutOfProgram { at: 0 }));
    assert_eq!(run(&[(0x20, 0, 0, 0)]), Err(InterpretError::OutOfProgram { at: 1 }));
}

#[test]
fn a_jump_past_the_end_is_an_error() {
    assert_eq!(
        run(&[(0x15, 7, 0, 0), (0x06, 0, 0, 0)]),
        Err(InterpretError::OutOfProgram { at: 8 })
    );
    let far = run(&[(0x05, 0, 0, u32::MAX), (0x06, 0, 0, 0)]);
    assert!(matches!(far, Err(InterpretError::OutOfProgram { .. })), "{far:?}");
}

#[test]
fn a_load_outside_the_data_or_across_words_is_an_error() {
    for offset in [1, 2, 63, 64, u32::MAX] {
        let wanted = Err(InterpretError::BadLoad { at: 0, offset });
        assert_eq!(run(&[(0x20, 0, 0, offset), (0x06, 0, 0, 0)]), wanted);
    }
}

#[test]
fn division_by_zero_and_shifts_of_a_word_are_errors() {
    for (code, k) in [(0x34, 0), (0x64, 32), (0x74, 32)] {
        let wanted = Err(InterpretError::BadOperand { at: 0 });
        assert_eq!(run(&[(code, 0, 0, k), (0x16, 0, 0, 0)]), wanted, "code {code:#x}");
    }
}

#[test]
fn operations_that_seccomp_refuses_are_errors() {
    // A byte load, a modulo, and a load at the index register.
    for code in [0x30, 0x94, 0x40] {
        let wanted = Err(InterpretError::Unsupported { at: 0, code });
        assert_eq!(run(&[(code, 0, 0, 0)]), wanted);
    }
}

#[test]
fn each_field_of_the_data_is_read_from_its_place() {
    let question = SeccompData {
        nr: 0x0101_0101,
        arch: 0x0202_0202,
        instruction_pointer: 0x0404_0404_0303_0303,
        args: [5, 7, 9, 11, 13, 15].map(|n: u64| ((n + 1) << 32) | n),
    };
    let words = [0x0101_0101, 0x0202_0202, 0x0303_0303, 0x0404_0404].into_iter().chain(5..=16);
    for (word, at) in words.zip((0..).step_by(4)) {
        let program = of(&[(0x20, 0, 0, at), (0x16, 0, 0, 0)]);
        let found = trace(&program, &question).expect("a valid program");
        assert_eq!((found.verdict, found.loads), (FilterVerdict::Other(word), vec![at]));
    }
}

#[test]
fn the_length_of_the_data_can_be_loaded() {
    assert_eq!(run(&[(0x80, 0, 0, 7), (0x16, 0, 0, 0)]), Ok(FilterVerdict::Other(64)));
}

#[test]
fn arithmetic_and_jumps_follow_the_definition_of_bpf() {
    let value = |code, k| run(&[(0x00, 0, 0, 12), (code, 0, 0, k), (0x16, 0, 0, 0)]);
    for (code, k, wanted) in [
        (0x04, 5, 17),
        (0x14, 5, 7),
        (0x24, 2, 24),
        (0x34, 5, 2),
        (0x44, 3, 15),
        (0x54, 6, 4),
        (0x64, 1, 24),
        (0x74, 2, 3),
        (0x84, 0, 12_u32.wrapping_neg()),
        (0xA4, 5, 9),
    ] {
        assert_eq!(value(code, k), Ok(FilterVerdict::Other(wanted)), "code {code:#x}");
    }
    for (code, k, holds) in [
        (0x15, 12, true),
        (0x15, 13, false),
        (0x25, 11, true),
        (0x25, 12, false),
        (0x35, 12, true),
        (0x35, 13, false),
        (0x45, 4, true),
        (0x45, 3, false),
    ] {
        let program = [(0x00, 0, 0, 12), (code, 1, 0, k), (0x06, 0, 0, 1), (0x06, 0, 0, 2)];
        let wanted = Ok(FilterVerdict::Other(1 + u32::from(holds)));
        assert_eq!(run(&program), wanted, "code {code:#x} {k}");
    }
}

#[test]
fn return_values_become_verdicts() {
    for (k, wanted) in [
        (0x7FFF_0000, FilterVerdict::Allow),
        (0x7FC0_0000, FilterVerdict::Notify),
        (0x0005_0000, FilterVerdict::Errno(0)),
        (0x0005_004C, FilterVerdict::Errno(76)),
        (0x8000_0000, FilterVerdict::Other(0x8000_0000)),
    ] {
        assert_eq!(run(&[(0x06, 0, 0, k)]), Ok(wanted));
    }
}

#[test]
fn random_programs_end_in_a_verdict_or_an_error() {
    let codes =
        [0x00, 0x20, 0x04, 0x34, 0x54, 0x64, 0x05, 0x15, 0x25, 0x35, 0x45, 0x06, 0x16, 0x07];
    let mut random = Random(0x5EED);
    let (mut verdicts, mut errors) = (0, 0);
    for _ in 0..20_000 {
        let length = random.word() as usize % 40;
        let one = |random: &mut Random| {
            let code = codes[random.word() as usize % codes.len()];
            let is_large = random.word().is_multiple_of(4);
            let k = random.word() % if is_large { u32::MAX } else { 80 };
            (code, (random.word() % 8) as u8, (random.word() % 8) as u8, k)
        };
        let program: Vec<_> = (0..length).map(|_| one(&mut random)).collect();
        let args = [0; 6].map(|_: u64| random.next());
        match trace(&of(&program), &data(Abi::X86_64, random.word(), args)) {
            Ok(trace) => {
                assert!(trace.path.is_sorted() && trace.path.len() <= length);
                verdicts += 1;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                errors += 1;
            }
        }
    }
    assert!(verdicts > 1_000 && errors > 1_000, "{verdicts} verdicts, {errors} errors");
}
