//! Properties of every program, for any policy: the kernel accepts it, it is short, and the
//! constant-action cache works.

use crate::common::{Random, abi_sets, cases, data, specs};
use synconce_filter::{
    Abi, Call, FilterVerdict, HeldAnswer, Instruction, Program, SeccompData, Spec, native_abis,
    program, trace,
};

const RETURN: u16 = 0x06;
const LOAD: u16 = 0x20;
const JUMPS: [u16; 3] = [0x15, 0x35, 0x45];
/// The limit of a program's length; the kernel accepts 4096.
const MOST_INSTRUCTIONS: usize = 230;
/// The limit of instructions on the longest path through a program.
const LONGEST_PATH: usize = 23;
/// Additional tests on the path of a handshake that asks for the last byte of an identity.
const TESTS_OF_BYTES: usize = 16;

fn every_program() -> impl Iterator<Item = (Spec, Vec<Abi>, Program)> {
    let with = |spec: Spec| abi_sets().into_iter().map(move |set| (spec, set));
    specs().into_iter().flat_map(with).map(|(spec, set)| {
        let program = program(&spec, &set);
        (spec, set, program)
    })
}

/// Returns the possible next instructions.
fn successors(at: usize, instruction: &Instruction) -> Vec<usize> {
    match instruction.code {
        RETURN => vec![],
        code if JUMPS.contains(&code) => {
            [instruction.jt, instruction.jf].map(|skip| at + 1 + usize::from(skip)).to_vec()
        }
        _ => vec![at + 1],
    }
}

/// Returns the number of instructions on the longest path from the start to a return.
fn longest_path(program: &Program) -> usize {
    let mut longest = vec![0; program.instructions().len()];
    for (at, instruction) in program.instructions().iter().enumerate().rev() {
        let next = successors(at, instruction).into_iter().map(|next| longest[next]);
        longest[at] = 1 + next.max().unwrap_or(0);
    }
    longest[0]
}

/// Whether no rule covers the number, under this architecture.
fn is_of_no_interest(arch: u32, nr: i32) -> bool {
    Call::identify(arch, nr).is_none()
}

#[test]
fn every_way_through_every_program_ends_in_a_return() {
    for (spec, set, program) in every_program() {
        let instructions = program.instructions();
        let mut reached = vec![false; instructions.len()];
        reached[0] = true;
        for (at, instruction) in instructions.iter().enumerate() {
            let known = [RETURN, LOAD, 0x54].contains(&instruction.code);
            assert!(known || JUMPS.contains(&instruction.code), "{instruction:?}");
            assert!(reached[at], "instruction {at} is dead for {spec:?} {set:?}\n{program}");
            for next in successors(at, instruction) {
                assert!(next < instructions.len(), "{at} leaves the program\n{program}");
                reached[next] = true;
            }
        }
    }
}

#[test]
fn programs_and_the_ways_through_them_stay_short() {
    let (mut instructions, mut path) = (0, 0);
    for (spec, set, program) in every_program() {
        let (count, longest) = (program.instructions().len(), longest_path(&program));
        assert!(count <= MOST_INSTRUCTIONS, "{count} instructions for {spec:?} {set:?}");
        let tests_of_bytes = spec.identity.map_or(0, |_| TESTS_OF_BYTES);
        let most = LONGEST_PATH + tests_of_bytes;
        assert!(longest <= most, "a way of {longest} for {spec:?} {set:?}\n{program}");
        (instructions, path) = (instructions.max(count), path.max(longest));
        if set == native_abis() {
            println!("{count:3} instructions, longest way {longest:2}: {spec:?}");
        }
    }
    println!("{instructions:3} instructions, longest way {path:2}: all policies and ABI sets");
}

#[test]
fn a_plain_openat_is_let_go_within_a_dozen_instructions() {
    let answer = HeldAnswer::Supervised;
    let spec = Spec { answer, io_uring_pass: false, identity: None, page_size: 4096 };
    for &abi in native_abis() {
        let number = Call::Openat.number(abi).expect("every ABI has openat");
        let program = program(&spec, native_abis());
        let trace = trace(&program, &data(abi, number, [0; 6])).expect("a valid program");
        println!("{:3} instructions for openat on {abi:?}", trace.path.len());
        assert_eq!(trace.verdict, FilterVerdict::Allow);
        assert!(trace.path.len() <= 13, "{} on {abi:?}", trace.path.len());
    }
}

#[test]
fn numbers_of_no_interest_are_allowed_without_a_look_at_an_argument() {
    for spec in specs() {
        let program = program(&spec, Abi::ALL);
        for arch in Abi::ALL.iter().map(|abi| abi.audit_arch()).chain([0x4000_00F3]) {
            let numbers = (-1..1024).chain(0x4000_0000..0x4000_0400);
            for nr in numbers.filter(|&nr| is_of_no_interest(arch, nr)) {
                let question = SeccompData { nr, arch, instruction_pointer: 1, args: [2; 6] };
                let trace = trace(&program, &question).expect("a valid program");
                assert_eq!(trace.verdict, FilterVerdict::Allow, "{arch:#x} {nr}");
                assert!(trace.loads.iter().all(|offset| [0, 4].contains(offset)), "{trace:?}");
                // The kernel's seccomp_is_const_allow can emulate each of these.
                let mut codes = trace.path.iter().map(|&at| program.instructions()[at].code);
                assert!(codes.all(|c| c == LOAD || c == RETURN || JUMPS.contains(&c)));
            }
        }
    }
}

#[test]
fn a_call_that_the_policy_lets_pass_needs_no_argument_either() {
    let answer = HeldAnswer::Sealed;
    let spec = Spec { answer, io_uring_pass: true, identity: None, page_size: 4096 };
    let program = program(&spec, Abi::ALL);
    for call in [Call::Openat, Call::Ioctl, Call::IoUringSetup, Call::Pwritev2] {
        for &abi in Abi::ALL {
            let number = call.number(abi).expect("every ABI has these");
            let trace = trace(&program, &data(abi, number, [0; 6])).expect("a valid program");
            assert!(trace.loads.iter().all(|offset| [0, 4].contains(offset)), "{call:?} {abi:?}");
        }
    }
}

#[test]
fn random_calls_never_make_a_program_fail() {
    let mut random = Random(0xC0FFEE);
    for spec in specs() {
        let program = program(&spec, Abi::ALL);
        for _ in 0..5_000 {
            let question = random_call(&mut random);
            let trace = trace(&program, &question).expect("a valid program");
            let sealed = spec.answer == HeldAnswer::Sealed;
            match trace.verdict {
                FilterVerdict::Allow => {}
                FilterVerdict::Notify => assert!(!sealed),
                FilterVerdict::Errno(errno) => {
                    let known = [0, 38, 76].contains(&errno);
                    let is_identity =
                        spec.identity.is_some_and(|it| it.map(u16::from).contains(&errno));
                    assert!(sealed && (known || is_identity));
                }
                FilterVerdict::Other(value) => panic!("{value:#x} for {question:?}"),
            }
            if is_of_no_interest(question.arch, question.nr) {
                assert_eq!(trace.verdict, FilterVerdict::Allow, "{question:?}");
            }
        }
    }
}

/// Returns, with equal probability, a wholly random call or a known call with random
/// arguments.
fn random_call(random: &mut Random) -> SeccompData {
    let args = [0; 6].map(|_: u64| random.next());
    let abi = Abi::ALL[random.word() as usize % Abi::ALL.len()];
    let call = Call::ALL[random.word() as usize % Call::ALL.len()];
    let known = random.word().is_multiple_of(2);
    match call.number(abi) {
        Some(number) if known => {
            let cases = cases(call, abi, random.next());
            data(abi, number, cases[random.word() as usize % cases.len()])
        }
        _ => SeccompData {
            nr: random.word().cast_signed(),
            arch: if known { abi.audit_arch() } else { random.word() },
            instruction_pointer: random.next(),
            args,
        },
    }
}
