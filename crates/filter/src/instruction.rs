//! Instructions of classic BPF for seccomp(2).

use std::fmt;

/// One instruction, with the fields of `struct sock_filter` (include/uapi/linux/filter.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if the condition is true.
    pub jt: u8,
    /// Instructions to skip if the condition is false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// A seccomp program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    instructions: Vec<Instruction>,
}

impl Program {
    /// Returns a program of these instructions, unchecked: for the interpreter. A program to
    /// install comes from [`crate::program()`].
    #[must_use]
    pub fn from_instructions(instructions: Vec<Instruction>) -> Self {
        Self { instructions }
    }

    /// Returns the instructions, in order.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }
}

/// Operation codes (include/uapi/linux/bpf_common.h) that programs use.
pub(crate) mod code {
    /// `BPF_LD | BPF_W | BPF_ABS`: load a word of `struct seccomp_data`.
    pub(crate) const LOAD: u16 = 0x20;
    /// `BPF_ALU | BPF_AND | BPF_K`.
    pub(crate) const AND: u16 = 0x54;
    /// `BPF_JMP | BPF_JEQ | BPF_K`.
    pub(crate) const JUMP_EQUAL: u16 = 0x15;
    /// `BPF_JMP | BPF_JGE | BPF_K`.
    pub(crate) const JUMP_AT_LEAST: u16 = 0x35;
    /// `BPF_JMP | BPF_JSET | BPF_K`.
    pub(crate) const JUMP_ANY_BIT: u16 = 0x45;
    /// `BPF_RET | BPF_K`.
    pub(crate) const RETURN: u16 = 0x06;
}

/// Return values (include/uapi/linux/seccomp.h).
pub(crate) mod ret {
    /// `SECCOMP_RET_ALLOW`.
    pub(crate) const ALLOW: u32 = 0x7FFF_0000;
    /// `SECCOMP_RET_USER_NOTIF`, Linux 5.0.
    pub(crate) const USER_NOTIF: u32 = 0x7FC0_0000;
    /// `SECCOMP_RET_ERRNO`; the errno is in the low 16 bits.
    pub(crate) const ERRNO: u32 = 0x0005_0000;
    /// `SECCOMP_RET_ACTION_FULL`.
    pub(crate) const ACTION_MASK: u32 = 0xFFFF_0000;
}

/// Offsets in `struct seccomp_data` (include/uapi/linux/seccomp.h), in bytes.
pub(crate) mod offset {
    /// The system call number.
    pub(crate) const NR: u32 = 0;
    /// The audit architecture.
    pub(crate) const ARCH: u32 = 4;
    /// The first argument's low half on a little-endian machine, as all of [`crate::Abi`] are.
    /// The other arguments follow at intervals of 8 bytes.
    pub(crate) const ARGS: u32 = 16;
    /// The size of the structure.
    pub(crate) const END: u32 = 64;
}

/// A listing with one instruction per line, with its index and absolute jump targets.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, instruction) in self.instructions.iter().enumerate() {
            let Instruction { code, jt, jf, k } = *instruction;
            let (yes, no) = (at + 1 + usize::from(jt), at + 1 + usize::from(jf));
            match code {
                code::LOAD => writeln!(f, "{at:3}: ld [{k}]"),
                code::AND => writeln!(f, "{at:3}: and {k:#x}"),
                code::JUMP_EQUAL => writeln!(f, "{at:3}: jeq {k:#x} ? {yes} : {no}"),
                code::JUMP_AT_LEAST => writeln!(f, "{at:3}: jge {k:#x} ? {yes} : {no}"),
                code::JUMP_ANY_BIT => writeln!(f, "{at:3}: jset {k:#x} ? {yes} : {no}"),
                code::RETURN => writeln!(f, "{at:3}: ret {k:#x}"),
                other => writeln!(f, "{at:3}: .code {other:#x} {jt} {jf} {k:#x}"),
            }?;
        }
        Ok(())
    }
}
