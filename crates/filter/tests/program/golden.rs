//! One small program, instruction by instruction.

use synconce_filter::{Abi, HeldAnswer, Instruction, Spec, program};

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const SMALL: Spec =
    Spec { answer: HeldAnswer::Sealed, io_uring_pass: true, identity: None, page_size: 4096 };

/// sync 81, fsync 82, fdatasync 83, sync_file_range 84, msync 227, syncfs 267.
const GOLDEN: [(u16, u8, u8, u32); 41] = [
    (LOAD, 0, 0, 4),
    (EQUAL, 0, 38, 0xC000_00B7),
    (LOAD, 0, 0, 0),
    // A binary search among six numbers.
    (AT_LEAST, 5, 0, 84),
    (AT_LEAST, 1, 0, 82),
    (EQUAL, 32, 31, 81),
    (AT_LEAST, 1, 0, 83),
    (EQUAL, 6, 29, 82),
    (EQUAL, 5, 28, 83),
    (AT_LEAST, 1, 0, 227),
    (EQUAL, 5, 26, 84),
    (AT_LEAST, 1, 0, 267),
    (EQUAL, 19, 24, 227),
    (EQUAL, 0, 23, 267),
    // fsync, fdatasync, syncfs: a negative descriptor is left to the kernel.
    (LOAD, 0, 0, 16),
    (ANY_BIT, 21, 22, 0x8000_0000),
    // sync_file_range: the handshake, then the flags, the offset and the length.
    (LOAD, 0, 0, 16),
    (ANY_BIT, 0, 3, 0x8000_0000),
    (EQUAL, 0, 18, 0xFFFF_FFFF),
    (LOAD, 0, 0, 40),
    (EQUAL, 18, 16, 0x5359_4E43),
    (LOAD, 0, 0, 40),
    (ANY_BIT, 14, 0, 0xFFFF_FFF8),
    (LOAD, 0, 0, 28),
    (ANY_BIT, 12, 0, 0xC000_0000),
    (LOAD, 0, 0, 36),
    (ANY_BIT, 10, 0, 0x8000_0000),
    (ANY_BIT, 0, 10, 0x4000_0000),
    // A huge length is held only from the start of the file.
    (LOAD, 0, 0, 28),
    (ANY_BIT, 7, 0, 0xFFFF_FFFF),
    (LOAD, 0, 0, 24),
    (ANY_BIT, 5, 6, 0xFFFF_FFFF),
    // msync: MS_SYNC with or without MS_INVALIDATE, and a page's address.
    (LOAD, 0, 0, 32),
    (AND, 0, 0, 0xFFFF_FFFD),
    (EQUAL, 0, 2, 4),
    (LOAD, 0, 0, 16),
    (ANY_BIT, 0, 1, 0xFFF),
    (RETURN, 0, 0, 0x7FFF_0000),
    (RETURN, 0, 0, 0x0005_0000),
    (RETURN, 0, 0, 0x0005_004C),
    // Any other architecture.
    (RETURN, 0, 0, 0x7FFF_0000),
];

#[test]
fn a_sealed_program_for_aarch64_is_these_instructions() {
    let build = |(code, jt, jf, k)| Instruction { code, jt, jf, k };
    let program = program(&SMALL, &[Abi::Aarch64]);
    assert_eq!(program.instructions(), GOLDEN.map(build), "\n{program}");
}

#[test]
fn a_program_without_abis_allows_everything() {
    let program = program(&SMALL, &[]);
    let listing = "  0: ld [4]\n  1: ret 0x7fff0000\n";
    assert_eq!(program.to_string(), listing);
}

#[test]
fn an_abi_that_is_named_twice_counts_once() {
    let twice = program(&SMALL, &[Abi::X32, Abi::X86_64, Abi::X32, Abi::X86_64]);
    assert_eq!(twice, program(&SMALL, &[Abi::X86_64, Abi::X32]));
}
