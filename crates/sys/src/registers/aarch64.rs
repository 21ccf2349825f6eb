//! aarch64, and 32-bit Arm under it. A thread is one or the other, so the kernel's answer has
//! the convention.
//!
//! The first argument and the result share a register. At the exit of a call the register has
//! the result: a first argument cannot be put back there. No first argument is changed.
//!
//! The number of the call that is being entered is in the kernel (`NT_ARM_SYSCALL` reads and
//! changes it). The register from which the kernel took the number has the same value, until a
//! tracer changes one of them. No other tracer can be there.

use super::{Convention, request};
use std::io;

/// x0 to x30, sp, pc, pstate (`struct user_pt_regs`, arch/arm64/include/uapi/asm/ptrace.h).
type Native = [u64; 34];
/// r0 to r15, cpsr, orig_r0 (`COMPAT_ELF_NGREG`, arch/arm64/include/asm/elf.h).
type Compat = [u32; 18];

/// The registers that have the number of a call: x8, and r7.
const NUMBER: usize = 8;
const COMPAT_NUMBER: usize = 7;

/// The general registers of a stopped thread.
#[derive(Clone, Copy, Debug)]
pub struct Registers(View);

#[derive(Clone, Copy, Debug)]
enum View {
    Native(Native),
    Compat(Compat),
}

impl Registers {
    /// Reads the registers of `thread`. The size of what the kernel writes says whether the
    /// thread is a 32-bit one (`task_user_regset_view`, arch/arm64/kernel/ptrace.c).
    pub(crate) fn read(thread: u32) -> io::Result<Self> {
        let mut words: Native = [0; 34];
        let mut part =
            libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of::<Native>() };
        let kind = libc::NT_PRSTATUS as usize;
        request(libc::PTRACE_GETREGSET, thread, kind, &raw mut part as usize)?;
        if part.iov_len == size_of::<Native>() {
            return Ok(Self(View::Native(words)));
        }
        let mut halves = words.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
        Ok(Self(View::Compat(std::array::from_fn(|_| halves.next().unwrap_or_default()))))
    }

    /// Writes the registers of `thread`.
    pub(crate) fn write(&self, thread: u32) -> io::Result<()> {
        let (base, length) = match &self.0 {
            View::Native(words) => (words.as_ptr().cast_mut().cast(), size_of::<Native>()),
            View::Compat(words) => (words.as_ptr().cast_mut().cast(), size_of::<Compat>()),
        };
        let part = libc::iovec { iov_base: base, iov_len: length };
        let kind = libc::NT_PRSTATUS as usize;
        request(libc::PTRACE_SETREGSET, thread, kind, &raw const part as usize)
    }

    /// Returns the number of the system call that is being entered.
    pub fn number(&self) -> i32 {
        match &self.0 {
            View::Native(words) => words[NUMBER] as i32,
            View::Compat(words) => words[COMPAT_NUMBER].cast_signed(),
        }
    }

    /// Returns the call's result, at its exit.
    pub fn returned(&self) -> i64 {
        match &self.0 {
            View::Native(words) => words[0].cast_signed(),
            View::Compat(words) => words[0].cast_signed().into(),
        }
    }

    /// Returns argument `index` (0 to 5).
    pub fn argument(&self, _: Convention, index: usize) -> u64 {
        match &self.0 {
            View::Native(words) => words[index],
            View::Compat(words) => words[index].into(),
        }
    }

    /// Sets argument `index` (0 to 5).
    pub fn set_argument(&mut self, _: Convention, index: usize, value: u64) {
        match &mut self.0 {
            View::Native(words) => words[index] = value,
            View::Compat(words) => words[index] = value as u32,
        }
    }
}
