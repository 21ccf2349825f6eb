//! A child process that installs a program and makes system calls.

use synconce_filter::{Abi, Program};
use synconce_sys::questions::{self, KernelEntry};
use synconce_sys::seccomp::Instruction;

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    pub abi: Abi,
    pub number: u32,
    pub args: [u64; 6],
}

/// Returns the kernel's answers, with negative errnos for errors, to a child that has
/// installed `program`.
///
/// # Errors
/// The child could not install the program, or died early.
pub fn ask(program: Option<&Program>, asked: &[Question]) -> Result<Vec<i64>, String> {
    let convert = |i: &synconce_filter::Instruction| Instruction {
        code: i.code,
        jump_true: i.jt,
        jump_false: i.jf,
        operand: i.k,
    };
    let filter: Option<Vec<_>> =
        program.map(|program| program.instructions().iter().map(convert).collect());
    let entry = |abi| if abi == Abi::I386 { KernelEntry::I386 } else { KernelEntry::Native };
    let question = |&Question { abi, number, args }: &Question| questions::Question {
        entry: entry(abi),
        number,
        args,
    };
    let asked: Vec<_> = asked.iter().map(question).collect();
    questions::ask(filter.as_deref(), &asked)
}
