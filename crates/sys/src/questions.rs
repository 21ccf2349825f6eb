//! Makes system calls in a child process that has installed a filter, for tests of filters.
//!
//! The calling process may have threads. So the child only makes system calls, and writes to memory
//! that was shared before the fork.

use crate::seccomp::{self, Instruction, Listen};
use std::ptr;

/// An entry point into the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEntry {
    /// The entry point of this program's architecture.
    Native,
    /// The entry point of 32-bit x86 programs; `ENOSYS` on other machines.
    I386,
}

/// A system call. Its pointers must be null or unmapped, and the call must not harm the
/// machine, unless the filter allows no call except the child's exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The entry point into the kernel.
    pub entry: KernelEntry,
    /// The number of the call.
    pub number: u32,
    /// The arguments of the call.
    pub args: [u64; 6],
}

/// The exit status of a child that could not install its filter.
const CANNOT_INSTALL: i32 = 3;

/// The error for a filter that the kernel refuses.
pub const REFUSED: &str = "the kernel refused the program";

/// Returns what each of `questions` returned in a child that has installed `program`, if there is
/// one. An error is a negative errno.
///
/// # Errors
/// The child could not be forked, could not install the program ([`REFUSED`]), or died early.
pub fn ask(program: Option<&[Instruction]>, questions: &[Question]) -> Result<Vec<i64>, String> {
    let answers = ChildNumbers::new(questions.len());
    // SAFETY: the child calls only async-signal-safe functions, as fork(2) demands of a
    // process with threads; it neither allocates nor panics.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(format!("cannot fork: {}", std::io::Error::last_os_error())),
        0 => child(program, questions, &answers),
        _ => {}
    }
    let status = wait_for(pid);
    if libc::WIFSIGNALED(status) {
        return Err(format!("the child died of signal {}", libc::WTERMSIG(status)));
    }
    match libc::WEXITSTATUS(status) {
        0 => Ok((0..questions.len()).map(|at| answers.get(at)).collect()),
        CANNOT_INSTALL => Err(REFUSED.to_owned()),
        code => Err(format!("the child exited with {code}")),
    }
}

/// Waits for the child `pid`, and returns its wait status (waitpid(2)).
fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if waited == pid {
            return status;
        }
        let error = std::io::Error::last_os_error();
        // libFuzzer's timer interrupts the wait.
        assert_eq!(error.raw_os_error(), Some(libc::EINTR), "cannot wait for the child: {error}");
    }
}

/// Whether a process can make i386 calls here: a kernel without `CONFIG_IA32_EMULATION`, or
/// with it turned off, kills a process that tries.
pub fn i386_works() -> bool {
    let getpid = Question { entry: KernelEntry::I386, number: 20, args: [0; 6] };
    ask(None, &[getpid]).is_ok_and(|answers| answers[0] > 0)
}

fn child(program: Option<&[Instruction]>, questions: &[Question], answers: &ChildNumbers) -> ! {
    let installed = program.is_none_or(install);
    if installed {
        for (at, question) in questions.iter().enumerate() {
            answers.set(at, call(question));
        }
    }
    // SAFETY: `_exit` never returns, and runs no exit handlers, which are the parent's.
    unsafe { libc::_exit(if installed { 0 } else { CANNOT_INSTALL }) }
}

fn install(program: &[Instruction]) -> bool {
    seccomp::set_no_new_privs().and_then(|()| seccomp::install(program, Listen::No)).is_ok()
}

fn call(question: &Question) -> i64 {
    let Question { entry, number, args } = *question;
    if entry == KernelEntry::I386 {
        return i386_call(number, args);
    }
    // SAFETY: a caller's question has no pointer to memory, or the filter lets no
    // call through; the memory of the child is a copy.
    let result = unsafe {
        libc::syscall(i64::from(number), args[0], args[1], args[2], args[3], args[4], args[5])
    };
    if result == -1 {
        // SAFETY: the location is valid for the life of the thread.
        return -i64::from(unsafe { *libc::__errno_location() });
    }
    result
}

#[cfg(target_arch = "x86_64")]
fn i386_call(number: u32, args: [u64; 6]) -> i64 {
    let words = args.map(|arg| arg as u32);
    let mut result = number;
    // SAFETY: the kernel's i386 entry takes the number in eax and arguments in ebx, ecx, edx,
    // esi, edi and ebp, and changes eax and at most r8-r11; ebx and ebp, which Rust reserves,
    // are restored. The calls are harmless, as in `call`.
    unsafe {
        std::arch::asm!(
            "push rbx",
            "push rbp",
            "mov ebx, [r15]",
            "mov ecx, [r15 + 4]",
            "mov edx, [r15 + 8]",
            "mov esi, [r15 + 12]",
            "mov edi, [r15 + 16]",
            "mov ebp, [r15 + 20]",
            "int 0x80",
            "pop rbp",
            "pop rbx",
            inout("eax") result,
            in("r15") words.as_ptr(),
            out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    i64::from(result.cast_signed())
}

#[cfg(not(target_arch = "x86_64"))]
fn i386_call(_number: u32, _args: [u64; 6]) -> i64 {
    -i64::from(libc::ENOSYS)
}

/// Numbers in shared memory, which a child writes and its parent reads.
struct ChildNumbers {
    base: *mut i64,
    count: usize,
}

impl ChildNumbers {
    fn new(count: usize) -> Self {
        let count = count.max(1);
        // SAFETY: a new anonymous mapping overlaps no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                count * size_of::<i64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED, "cannot map shared memory");
        Self { base: base.cast(), count }
    }

    fn set(&self, at: usize, value: i64) {
        // SAFETY: `at` is the index of a question, and there is room for each question; the parent
        // reads only once the child has ended.
        unsafe { self.base.add(at).write_volatile(value) }
    }

    fn get(&self, at: usize) -> i64 {
        assert!(at < self.count);
        // SAFETY: `at` is inside the mapping, and the child that wrote to it has ended.
        unsafe { self.base.add(at).read_volatile() }
    }
}

impl Drop for ChildNumbers {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no borrow of it is left.
        unsafe { libc::munmap(self.base.cast(), self.count * size_of::<i64>()) };
    }
}
