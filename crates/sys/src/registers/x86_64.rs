//! x86-64 (`struct user_regs_struct`, arch/x86/include/asm/user_64.h).

use super::{Convention, request};
use std::io;

/// The general registers of a stopped thread.
#[derive(Clone, Copy, Debug)]
pub struct Registers(libc::user_regs_struct);

impl Registers {
    /// Reads the registers of `thread`. `PTRACE_GETREGS` has the 64-bit registers also of a
    /// 32-bit thread, which `PTRACE_GETREGSET` has not.
    pub(crate) fn read(thread: u32) -> io::Result<Self> {
        let mut raw = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
        request(libc::PTRACE_GETREGS, thread, 0, raw.as_mut_ptr() as usize)?;
        // SAFETY: the kernel filled the whole structure.
        Ok(Self(unsafe { raw.assume_init() }))
    }

    /// Writes the registers of `thread`.
    pub(crate) fn write(&self, thread: u32) -> io::Result<()> {
        request(libc::PTRACE_SETREGS, thread, 0, &raw const self.0 as usize)
    }

    /// Returns the number of the system call that is being entered.
    pub fn number(&self) -> i32 {
        self.0.orig_rax as i32
    }

    /// Returns the call's result, at its exit.
    pub fn returned(&self) -> i64 {
        self.0.rax as i64
    }

    /// Returns argument `index` (0 to 5).
    pub fn argument(&self, convention: Convention, index: usize) -> u64 {
        let mut copy = self.0;
        *register(&mut copy, convention, index)
    }

    /// Sets argument `index` (0 to 5).
    pub fn set_argument(&mut self, convention: Convention, index: usize, value: u64) {
        *register(&mut self.0, convention, index) = value;
    }
}

/// Returns the register of an argument. Native: `syscall`. Compat: `int 0x80` and `sysenter`.
fn register(
    r: &mut libc::user_regs_struct,
    convention: Convention,
    index: usize,
) -> &mut libc::c_ulonglong {
    match (convention, index) {
        (Convention::Native, 0) => &mut r.rdi,
        (Convention::Native, 1) => &mut r.rsi,
        (Convention::Native, 2) => &mut r.rdx,
        (Convention::Native, 3) => &mut r.r10,
        (Convention::Native, 4) => &mut r.r8,
        (Convention::Native, _) => &mut r.r9,
        (Convention::Compat, 0) => &mut r.rbx,
        (Convention::Compat, 1) => &mut r.rcx,
        (Convention::Compat, 2) => &mut r.rdx,
        (Convention::Compat, 3) => &mut r.rsi,
        (Convention::Compat, 4) => &mut r.rdi,
        (Convention::Compat, _) => &mut r.rbp,
    }
}
