//! The general registers of a stopped thread, by architecture: where a system call has its
//! number, its arguments and its result (syscall(2), *Architecture calling conventions*).

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use self::aarch64::Registers;
#[cfg(target_arch = "x86_64")]
pub use self::x86_64::Registers;

use crate::check;
use std::io;

/// The register convention of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// The registers of 64-bit calls, and of x32.
    Native,
    /// The registers of the kernel's 32-bit calls: i386 on x86-64, 32-bit Arm on aarch64.
    Compat,
}

/// Makes a request of ptrace(2) to `thread`.
pub(crate) fn request(
    kind: libc::c_uint,
    thread: u32,
    address: usize,
    data: usize,
) -> io::Result<()> {
    // SAFETY: `data` is a number or points to a structure that the caller, in this
    // crate, keeps alive for the kernel to read or fill.
    check(unsafe { libc::ptrace(kind, thread as i32, address, data) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Stop, Tracee};
    use std::process::{Child, Command, Stdio};

    /// Starts a process that waits in read(2), and stops it at the entry of that call.
    fn reader() -> (Child, Tracee) {
        let mut shell = Command::new("sh");
        let child = shell.args(["-c", "read line"]).stdin(Stdio::piped()).spawn();
        let child = child.expect("a shell");
        let tracee = Tracee::seize(child.id()).expect("a tracee");
        tracee.interrupt().expect("a running tracee");
        loop {
            match tracee.wait().expect("a stop") {
                Stop::Entry if is_read_of_standard_input(&tracee) => return (child, tracee),
                Stop::Gone => panic!("the shell has ended"),
                _ => tracee.run_to_syscall(0).expect("a stopped tracee"),
            }
        }
    }

    fn is_read_of_standard_input(tracee: &Tracee) -> bool {
        let (number, args) = tracee.entry().expect("a tracee at an entry");
        i64::from(number) == libc::SYS_read && args[0] == 0
    }

    #[test]
    fn registers_at_an_entry_are_the_number_and_arguments_of_the_call() {
        let (mut child, tracee) = reader();
        let (number, args) = tracee.entry().expect("a tracee at an entry");
        let registers = tracee.registers().expect("registers");
        assert_eq!(registers.number(), number);
        let found = [0, 1, 2, 3, 4, 5].map(|at| registers.argument(Convention::Native, at));
        assert_eq!(found, args);
        child.kill().expect("a child");
        child.wait().expect("a child");
    }

    #[test]
    fn the_kernel_does_the_call_with_the_arguments_that_were_set() {
        let (mut child, tracee) = reader();
        let mut registers = tracee.registers().expect("registers");
        // Nothing is read, as at the end of a file; without the change the call would wait.
        registers.set_argument(Convention::Native, 2, 0);
        tracee.set_registers(&registers).expect("a stopped tracee");
        tracee.run_to_syscall(0).expect("a stopped tracee");
        assert_eq!(tracee.wait().expect("a stop"), Stop::Exit);
        assert_eq!(tracee.registers().expect("registers").returned(), 0);
        child.kill().expect("a child");
        child.wait().expect("a child");
    }
}
