//! Re-issuing a call with changed arguments, by `ptrace(2)`.
//!
//! A call that must be *done*, only without its sync flag, cannot be answered:
//! the caller's own rights, umask, root and namespaces decide what it does. So
//! the caller is made to restart the call, stopped at its entry, given the
//! changed arguments, and given its own back at the exit. The kernel does the
//! call itself, and every error is the kernel's.
//!
//! All functions must be called from one thread, which is the tracer. It must
//! trace nothing else, and have no children.

use crate::check;
use crate::process::{self, Change, WaitFor, Whose};
use std::cell::Cell;
use std::io;
use std::time::Duration;

/// A thread's signal mask, as the kernel keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(u64);

impl Mask {
    /// Every signal that can be blocked: all but `SIGKILL` and `SIGSTOP`.
    pub const ALL: Self = Self(!(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1)));

    pub(crate) fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// A traced thread. Dropping it does not detach; the end of the tracing thread does.
#[derive(Debug)]
pub struct Tracee {
    /// Its id, which an execution changes.
    thread: Cell<u32>,
}

/// Where a traced thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Before a system call (`PTRACE_SYSCALL_INFO_ENTRY`).
    Entry,
    /// After a system call.
    Exit,
    /// At the delivery of this signal.
    Signal(i32),
    /// Stopped by job control.
    Group,
    /// A stop that we asked for.
    Interrupt,
    /// The thread is gone.
    Gone,
}

const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// Between two looks at an end that somebody else is to take.
const MOMENT: Duration = Duration::from_millis(1);

impl Tracee {
    /// Starts to trace `thread`, which goes on.
    ///
    /// # Errors
    /// `EPERM` when it is traced already or may not be, `ESRCH` when it is gone.
    pub fn seize(thread: u32) -> io::Result<Self> {
        request(libc::PTRACE_SEIZE, thread, 0, libc::PTRACE_O_TRACESYSGOOD as usize)?;
        Ok(Self { thread: Cell::new(thread) })
    }

    /// The thread's id.
    pub fn thread(&self) -> u32 {
        self.thread.get()
    }

    /// Asks the thread to stop (`PTRACE_INTERRUPT`).
    ///
    /// # Errors
    /// `ESRCH` when it is gone.
    pub fn interrupt(&self) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, self.thread(), 0, 0)
    }

    /// Waits for the next stop. An end is left to be taken, by [`Tracee::let_go`].
    ///
    /// # Errors
    /// Those of `waitid(2)` but `ECHILD`.
    pub fn wait(&self) -> io::Result<Stop> {
        // Whoever it is, of the one that we trace: an execution by another of its
        // threads changes its id, and would not wake who waits for the old one.
        let peek = WaitFor {
            ends: true,
            stops: true,
            block: true,
            tracees: true,
            peek: true,
            ..WaitFor::default()
        };
        let take = WaitFor { stops: true, tracees: true, ..WaitFor::default() };
        loop {
            let id = match unless_gone(process::wait(Whose::Any, peek))? {
                Some((id, Change::Trapped(_) | Change::Stopped(_))) => id,
                _ => return Ok(Stop::Gone),
            };
            // It may be killed before this, and its end must not be taken for a stop.
            if let Some((_, Change::Trapped(code))) =
                unless_gone(process::wait(Whose::Id(id), take))?
            {
                self.thread.set(id);
                return Ok(self.stop(code));
            }
        }
    }

    /// What the exit code of a stop says (ptrace(2)).
    fn stop(&self, code: i32) -> Stop {
        match (code & 0xff, code >> 8) {
            (SYSCALL_STOP, _) => self.syscall_side(),
            (libc::SIGTRAP, libc::PTRACE_EVENT_STOP) => Stop::Interrupt,
            (_, libc::PTRACE_EVENT_STOP) => Stop::Group,
            (signal, _) => Stop::Signal(signal),
        }
    }

    fn syscall_side(&self) -> Stop {
        let mut info = std::mem::MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
        let size = size_of::<libc::ptrace_syscall_info>();
        // SAFETY: the kernel writes at most `size` bytes into memory we own.
        unsafe {
            libc::ptrace(
                libc::PTRACE_GET_SYSCALL_INFO,
                self.thread() as i32,
                size,
                info.as_mut_ptr(),
            )
        };
        // SAFETY: zeroed is valid, and the first byte was written by the kernel.
        match unsafe { info.assume_init() }.op {
            libc::PTRACE_SYSCALL_INFO_ENTRY => Stop::Entry,
            _ => Stop::Exit,
        }
    }

    /// Lets the thread run to its next system call stop, delivering `signal` (0: none).
    ///
    /// # Errors
    /// `ESRCH` when it is gone.
    pub fn run_to_syscall(&self, signal: i32) -> io::Result<()> {
        request(libc::PTRACE_SYSCALL, self.thread(), 0, signal as usize)
    }

    /// The signal mask of a stopped thread.
    ///
    /// # Errors
    /// `ESRCH` when it is gone.
    pub fn mask(&self) -> io::Result<Mask> {
        let mut mask = Mask(0);
        let at = &raw mut mask.0 as usize;
        request(libc::PTRACE_GETSIGMASK, self.thread(), size_of::<u64>(), at)?;
        Ok(mask)
    }

    /// Makes `mask` the signal mask of a stopped thread.
    ///
    /// # Errors
    /// `ESRCH` when it is gone.
    pub fn set_mask(&self, mask: Mask) -> io::Result<()> {
        let at = &raw const mask.0 as usize;
        request(libc::PTRACE_SETSIGMASK, self.thread(), size_of::<u64>(), at)
    }

    /// Ends the tracing; the thread goes on, with `signal` delivered (0: none).
    ///
    /// If it has ended, this takes its end: the end of its process, and an
    /// execution by another thread, wait for that. The end of the process `awaited`
    /// is left to another thread of ours, whose child it is, and waited for.
    pub fn let_go(self, signal: i32, awaited: u32) {
        let detach = || request(libc::PTRACE_DETACH, self.thread(), 0, signal as usize).is_ok();
        if detach() {
            return;
        }
        // It has ended or is about to, or it did not come to a stop that it was asked for.
        let _ = self.interrupt();
        let peek =
            WaitFor { ends: true, block: true, tracees: true, peek: true, ..WaitFor::default() };
        let take = WaitFor { block: false, peek: false, ..peek };
        while let Ok(Some((id, change))) = process::wait(Whose::Any, peek) {
            match change {
                Change::Exited(_) | Change::Killed(_) if id != awaited => {
                    let _ = process::wait(Whose::Id(id), take);
                }
                Change::Exited(_) | Change::Killed(_) => std::thread::sleep(MOMENT),
                _ => {
                    self.thread.set(id);
                    if detach() {
                        return;
                    }
                }
            }
        }
    }

    /// The registers at a stop.
    ///
    /// # Errors
    /// `ESRCH` when the thread is gone or not stopped.
    pub fn registers(&self) -> io::Result<Registers> {
        let mut raw = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
        request(libc::PTRACE_GETREGS, self.thread(), 0, raw.as_mut_ptr() as usize)?;
        // SAFETY: the kernel filled the whole structure.
        Ok(Registers(unsafe { raw.assume_init() }))
    }

    /// Writes the registers at a stop.
    ///
    /// # Errors
    /// `ESRCH` when the thread is gone or not stopped.
    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        request(libc::PTRACE_SETREGS, self.thread(), 0, &raw const registers.0 as usize)
    }
}

/// A change, if there is anybody left for one.
fn unless_gone(waited: io::Result<Option<(u32, Change)>>) -> io::Result<Option<(u32, Change)>> {
    match waited {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        other => other,
    }
}

fn request(kind: libc::c_uint, thread: u32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: `data` is a number or points to a structure that the caller of this
    // private function keeps alive for the kernel to read or fill.
    check(unsafe { libc::ptrace(kind, thread as i32, address, data) }).map(drop)
}

/// The general registers of a stopped thread.
#[derive(Clone, Copy, Debug)]
pub struct Registers(libc::user_regs_struct);

/// The two register conventions for arguments that an x86-64 kernel serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// `syscall`: rdi, rsi, rdx, r10, r8, r9.
    Native,
    /// `int 0x80`, `sysenter`: ebx, ecx, edx, esi, edi, ebp.
    I386,
}

impl Registers {
    /// The system call number that is being entered.
    pub fn number(&self) -> i32 {
        self.0.orig_rax as i32
    }

    /// What the call returned, at its exit.
    pub fn returned(&self) -> i64 {
        self.0.rax as i64
    }

    /// Where argument `index` (0 to 5) is.
    pub fn argument(&mut self, convention: Convention, index: usize) -> &mut u64 {
        let r = &mut self.0;
        match (convention, index) {
            (Convention::Native, 0) => &mut r.rdi,
            (Convention::Native, 1) => &mut r.rsi,
            (Convention::Native, 2) => &mut r.rdx,
            (Convention::Native, 3) => &mut r.r10,
            (Convention::Native, 4) => &mut r.r8,
            (Convention::Native, _) => &mut r.r9,
            (Convention::I386, 0) => &mut r.rbx,
            (Convention::I386, 1) => &mut r.rcx,
            (Convention::I386, 2) => &mut r.rdx,
            (Convention::I386, 3) => &mut r.rsi,
            (Convention::I386, 4) => &mut r.rdi,
            (Convention::I386, _) => &mut r.rbp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// The tracer of `thread`, and its state.
    fn traced(thread: u32) -> (String, String) {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap();
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            value.split_whitespace().next().unwrap().to_owned()
        };
        (field("TracerPid:"), field("State:"))
    }

    #[test]
    fn a_thread_that_ends_lets_go_of_whom_it_traces_stopped_or_not() {
        for stop in [true, false] {
            let mut child = Command::new("sleep").arg("60").spawn().unwrap();
            let thread = child.id();
            std::thread::spawn(move || {
                let tracee = Tracee::seize(thread).unwrap();
                if stop {
                    tracee.interrupt().unwrap();
                    assert_eq!(tracee.wait().unwrap(), Stop::Interrupt);
                }
                assert_ne!(traced(thread).0, "0");
            })
            .join()
            .unwrap();
            // The end of the thread is seen before the kernel is done with it.
            let free = (0..1000).any(|_| {
                std::thread::sleep(MOMENT);
                traced(thread).0 == "0" && traced(thread).1 != "t"
            });
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(free, "stopped: {stop}");
        }
    }
}
