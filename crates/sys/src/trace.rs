//! Makes a thread repeat a call with changed arguments, by ptrace(2).
//!
//! A call that must be *done*, only without its sync flag, cannot be answered: the caller's
//! own rights, umask, root and namespaces decide what the call does. So the caller is made to
//! restart the call, is stopped at the call's entry, gets the changed arguments, and gets its
//! own arguments back at the exit. The kernel does the call, and every error is the kernel's.
//!
//! All functions must be called from one thread, which is the tracer. The tracer must trace no
//! other thread, and have no children.

use crate::process::{self, ChildChange, WaitFor, Whose};
use crate::registers::{Registers, request};
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

/// A traced thread. Dropping this value does not detach; the exit of the tracing thread does.
#[derive(Debug)]
pub struct Tracee {
    /// The thread's id, which execve(2) may change.
    thread: Cell<u32>,
}

/// The state of a traced thread.
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
    /// In a stop that [`Tracee::interrupt`] requested.
    Interrupt,
    /// The thread has exited.
    Gone,
}

const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// The pause between two checks for a process that another thread is to reap.
const MOMENT: Duration = Duration::from_millis(1);

impl Tracee {
    /// Starts to trace `thread`, which keeps running.
    ///
    /// # Errors
    /// `EPERM` if the thread is traced already or may not be traced, `ESRCH` if it has exited.
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
    /// `ESRCH` if the thread has exited.
    pub fn interrupt(&self) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, self.thread(), 0, 0)
    }

    /// Waits for the next stop. Does not reap an exited thread; [`Tracee::let_go`] does.
    ///
    /// # Errors
    /// Those of waitid(2) except `ECHILD`.
    pub fn wait(&self) -> io::Result<Stop> {
        // Waits for any id, although there is one tracee: if another thread of its process
        // calls execve(2), the tracee's id changes, and a wait for the old id would not
        // return.
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
                Some((id, ChildChange::Trapped(_) | ChildChange::Stopped(_))) => id,
                _ => return Ok(Stop::Gone),
            };
            // The thread may be killed before this wait, and its exit is no stop.
            if let Some((_, ChildChange::Trapped(code))) =
                unless_gone(process::wait(Whose::Id(id), take))?
            {
                self.thread.set(id);
                return Ok(self.stop(code));
            }
        }
    }

    /// Decodes the exit code of a stop (ptrace(2)).
    fn stop(&self, code: i32) -> Stop {
        match (code & 0xff, code >> 8) {
            (SYSCALL_STOP, _) => self.syscall_side(),
            (libc::SIGTRAP, libc::PTRACE_EVENT_STOP) => Stop::Interrupt,
            (_, libc::PTRACE_EVENT_STOP) => Stop::Group,
            (signal, _) => Stop::Signal(signal),
        }
    }

    fn syscall_side(&self) -> Stop {
        match self.syscall_info().op {
            libc::PTRACE_SYSCALL_INFO_ENTRY => Stop::Entry,
            _ => Stop::Exit,
        }
    }

    fn syscall_info(&self) -> libc::ptrace_syscall_info {
        let mut info = std::mem::MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
        let size = size_of::<libc::ptrace_syscall_info>();
        // SAFETY: the kernel writes at most `size` bytes into `info`.
        unsafe {
            libc::ptrace(
                libc::PTRACE_GET_SYSCALL_INFO,
                self.thread() as i32,
                size,
                info.as_mut_ptr(),
            )
        };
        // SAFETY: zeroed is valid, and the first byte was written by the kernel.
        unsafe { info.assume_init() }
    }

    /// Returns the number and the arguments of the call at whose entry the thread is, or `None`
    /// if it is at none.
    #[cfg(test)]
    pub(crate) fn entry(&self) -> Option<(i32, [u64; 6])> {
        let info = self.syscall_info();
        if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
            return None;
        }
        // SAFETY: this variant is the one of an entry.
        let entry = unsafe { info.u.entry };
        Some((entry.nr as i32, entry.args))
    }

    /// Lets the thread run to its next system call stop, delivering `signal` (0: none).
    ///
    /// # Errors
    /// `ESRCH` if the thread has exited.
    pub fn run_to_syscall(&self, signal: i32) -> io::Result<()> {
        request(libc::PTRACE_SYSCALL, self.thread(), 0, signal as usize)
    }

    /// Returns the signal mask of a stopped thread.
    ///
    /// # Errors
    /// `ESRCH` if the thread has exited.
    pub fn mask(&self) -> io::Result<Mask> {
        let mut mask = Mask(0);
        let at = &raw mut mask.0 as usize;
        request(libc::PTRACE_GETSIGMASK, self.thread(), size_of::<u64>(), at)?;
        Ok(mask)
    }

    /// Sets the signal mask of a stopped thread.
    ///
    /// # Errors
    /// `ESRCH` if the thread has exited.
    pub fn set_mask(&self, mask: Mask) -> io::Result<()> {
        let at = &raw const mask.0 as usize;
        request(libc::PTRACE_SETSIGMASK, self.thread(), size_of::<u64>(), at)
    }

    /// Stops tracing; the thread continues, with `signal` delivered (0: none).
    ///
    /// Reaps an exited tracee; until then its process cannot be reaped and execve(2) in a
    /// sibling thread blocks. The process `awaited` is reaped by another thread of this
    /// process, which is waited for here.
    pub fn let_go(self, signal: i32, awaited: u32) {
        let detach = || request(libc::PTRACE_DETACH, self.thread(), 0, signal as usize).is_ok();
        if detach() {
            return;
        }
        // The thread has exited or is about to, or it did not reach the stop that was
        // requested.
        let _ = self.interrupt();
        let peek =
            WaitFor { ends: true, block: true, tracees: true, peek: true, ..WaitFor::default() };
        let take = WaitFor { block: false, peek: false, ..peek };
        while let Ok(Some((id, change))) = process::wait(Whose::Any, peek) {
            match change {
                ChildChange::Exited(_) | ChildChange::Killed(_) if id != awaited => {
                    let _ = process::wait(Whose::Id(id), take);
                }
                ChildChange::Exited(_) | ChildChange::Killed(_) => std::thread::sleep(MOMENT),
                _ => {
                    self.thread.set(id);
                    if detach() {
                        return;
                    }
                }
            }
        }
    }

    /// Returns the registers at a stop.
    ///
    /// # Errors
    /// `ESRCH` if the thread has exited or is not stopped.
    pub fn registers(&self) -> io::Result<Registers> {
        Registers::read(self.thread())
    }

    /// Writes the registers at a stop.
    ///
    /// # Errors
    /// `ESRCH` if the thread has exited or is not stopped.
    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        registers.write(self.thread())
    }
}

/// Turns ECHILD into `None`: no tracee is left.
fn unless_gone(
    waited: io::Result<Option<(u32, ChildChange)>>,
) -> io::Result<Option<(u32, ChildChange)>> {
    match waited {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Returns the tracer of `thread`, and the thread's state.
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
            // join() returns before the kernel has detached the tracees.
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
