//! Interprets a program as the kernel does: a program of this crate in tests, and a program that
//! a process of a run installs.

use std::error::Error;
use std::fmt;

use crate::instruction::{Instruction, Program, offset, ret};

/// The kernel's description of a call, `struct seccomp_data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeccompData {
    /// System call number.
    pub nr: i32,
    /// `AUDIT_ARCH_*` of the call.
    pub arch: u32,
    /// Address of the calling instruction.
    pub instruction_pointer: u64,
    /// Arguments, by index; in 32-bit ABIs the upper halves are 0.
    pub args: [u64; 6],
}

/// The result of a program for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterVerdict {
    /// The kernel does the call.
    Allow,
    /// The kernel skips the call, which returns this errno; 0 is success.
    Errno(u16),
    /// The call waits until a supervisor has answered.
    Notify,
    /// Any other return value, unchanged.
    Other(u32),
}

/// Why a program has no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterpretError {
    /// The program has no instruction with this index: its end was reached, or a jump went
    /// past it.
    OutOfProgram {
        /// Index of the missing instruction.
        at: usize,
    },
    /// A load outside of `struct seccomp_data`, or not of a whole word.
    BadLoad {
        /// Index of the instruction.
        at: usize,
        /// Offset in bytes.
        offset: u32,
    },
    /// A division by zero, or a shift by 32 bits or more.
    BadOperand {
        /// Index of the instruction.
        at: usize,
    },
    /// An operation that seccomp(2) refuses, or that needs the index register
    /// or scratch memory, which no program of this crate uses.
    Unsupported {
        /// Index of the instruction.
        at: usize,
        /// Operation.
        code: u16,
    },
}

impl fmt::Display for InterpretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfProgram { at } => write!(f, "the program has no instruction {at}"),
            Self::BadLoad { at, offset } => {
                write!(f, "instruction {at} loads from offset {offset}")
            }
            Self::BadOperand { at } => {
                write!(f, "instruction {at} divides by zero or shifts by 32 bits or more")
            }
            Self::Unsupported { at, code } => {
                write!(f, "instruction {at} has the unsupported code {code:#x}")
            }
        }
    }
}

impl Error for InterpretError {}

/// A verdict, and how the program reached it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trace {
    /// The program's result.
    pub verdict: FilterVerdict,
    /// Indexes of the instructions that ran, in order; the last one is a return.
    pub path: Vec<usize>,
    /// Offsets in `struct seccomp_data` that were read, in bytes: 0 is the number, 4 the
    /// architecture, 8 and 12 the instruction pointer, 16 and above are arguments.
    pub loads: Vec<u32>,
}

/// Returns the verdict of `program` on the call `data`.
///
/// # Errors
/// The kernel would refuse the program, or the program has an operation that no program of this
/// crate uses.
pub fn interpret(program: &Program, data: &SeccompData) -> Result<FilterVerdict, InterpretError> {
    trace(program, data).map(|trace| trace.verdict)
}

/// Like [`interpret`], and returns the path to the verdict as well.
///
/// # Errors
/// Those of [`interpret`].
pub fn trace(program: &Program, data: &SeccompData) -> Result<Trace, InterpretError> {
    let instructions = program.instructions();
    let (mut path, mut loads) = (Vec::new(), Vec::new());
    let (mut at, mut accumulator) = (0, 0);
    // Jumps only go forward, so the loop ends at the end of the program, or before.
    loop {
        let instruction = instructions.get(at).ok_or(InterpretError::OutOfProgram { at })?;
        path.push(at);
        match step(at, instruction, accumulator, data)? {
            InstructionEffect::Load(offset, value) => {
                loads.push(offset);
                accumulator = value;
                at += 1;
            }
            InstructionEffect::Value(value) => {
                accumulator = value;
                at += 1;
            }
            InstructionEffect::Skip(count) => at = at.saturating_add(1).saturating_add(count),
            InstructionEffect::Return(value) => {
                return Ok(Trace { verdict: verdict(value), path, loads });
            }
        }
    }
}

/// The effect of one instruction.
enum InstructionEffect {
    /// The offset in bytes of a loaded word, and its value, which goes to the accumulator.
    Load(u32, u32),
    /// This value goes to the accumulator.
    Value(u32),
    /// This many of the next instructions are skipped.
    Skip(usize),
    Return(u32),
}

/// Executes one instruction. `a` is the accumulator; `at` is used in errors only.
fn step(
    at: usize,
    instruction: &Instruction,
    a: u32,
    data: &SeccompData,
) -> Result<InstructionEffect, InterpretError> {
    let Instruction { code, jt, jf, k } = *instruction;
    let bad = InterpretError::BadOperand { at };
    let branch = |holds: bool| InstructionEffect::Skip(usize::from(if holds { jt } else { jf }));
    Ok(match code {
        0x00 => InstructionEffect::Value(k),
        0x80 => InstructionEffect::Value(offset::END),
        0x20 => InstructionEffect::Load(
            k,
            word(data, k).ok_or(InterpretError::BadLoad { at, offset: k })?,
        ),
        0x04 => InstructionEffect::Value(a.wrapping_add(k)),
        0x14 => InstructionEffect::Value(a.wrapping_sub(k)),
        0x24 => InstructionEffect::Value(a.wrapping_mul(k)),
        0x34 => InstructionEffect::Value(a.checked_div(k).ok_or(bad)?),
        0x44 => InstructionEffect::Value(a | k),
        0x54 => InstructionEffect::Value(a & k),
        0x64 => InstructionEffect::Value(a.checked_shl(k).ok_or(bad)?),
        0x74 => InstructionEffect::Value(a.checked_shr(k).ok_or(bad)?),
        0x84 => InstructionEffect::Value(a.wrapping_neg()),
        0xA4 => InstructionEffect::Value(a ^ k),
        0x05 => InstructionEffect::Skip(usize::try_from(k).unwrap_or(usize::MAX)),
        0x15 => branch(a == k),
        0x25 => branch(a > k),
        0x35 => branch(a >= k),
        0x45 => branch(a & k != 0),
        0x06 => InstructionEffect::Return(k),
        0x16 => InstructionEffect::Return(a),
        code => return Err(InterpretError::Unsupported { at, code }),
    })
}

/// Returns the word at the offset `at` in bytes, as on a little-endian machine. Returns `None` at
/// an offset that is unaligned or outside of `struct seccomp_data`.
fn word(data: &SeccompData, at: u32) -> Option<u32> {
    if !at.is_multiple_of(4) || at >= offset::END {
        return None;
    }
    let half = |value: u64| {
        if at.is_multiple_of(8) { value as u32 } else { (value >> 32) as u32 }
    };
    Some(match at {
        offset::NR => data.nr.cast_unsigned(),
        offset::ARCH => data.arch,
        8..offset::ARGS => half(data.instruction_pointer),
        _ => half(data.args[(at - offset::ARGS) as usize / 8]),
    })
}

fn verdict(value: u32) -> FilterVerdict {
    match value & ret::ACTION_MASK {
        ret::ALLOW => FilterVerdict::Allow,
        ret::USER_NOTIF => FilterVerdict::Notify,
        ret::ERRNO => FilterVerdict::Errno((value & 0xFFFF) as u16),
        _ => FilterVerdict::Other(value),
    }
}
