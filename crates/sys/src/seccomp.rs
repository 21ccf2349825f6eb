//! Installing a seccomp filter on the calling thread (`seccomp(2)`).

use crate::check;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// One classic BPF instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if the test is true.
    pub jump_true: u8,
    /// Instructions to skip if the test is false.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

/// Whether the filter gets a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Return a notification descriptor. A signal interrupts the wait for an answer.
    Yes,
    /// Like `Yes`, but once a call was received only a fatal signal interrupts the wait
    /// (`WAIT_KILLABLE_RECV`, Linux 5.19). Before Linux 5.19 the same as `Yes`.
    UntilAnswered,
    /// No listener: the filter alone answers.
    No,
}

impl Listen {
    const fn wait_flag(self) -> libc::c_ulong {
        match self {
            Self::UntilAnswered => libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
            Self::Yes | Self::No => 0,
        }
    }
}

/// Installs `program` on the calling thread, which must have `CAP_SYS_ADMIN` in its user
/// namespace or no_new_privs set.
///
/// Uses `SPEC_ALLOW` (before 5.16 a filter otherwise turns on speculation mitigations).
/// [`Listen::Yes`] does not use `WAIT_KILLABLE_RECV` (5.19). With that flag, a caller whose call
/// was received cannot be frozen before it gets its answer. A cgroup freezer that has frozen the
/// supervisor would wait for ever. Async-signal-safe: it allocates nothing.
///
/// # Errors
/// `EACCES` without the privilege, `EBUSY` if another filter of the thread has a listener
/// already, `EINVAL` or `ENOSYS` if the kernel has no seccomp.
pub(crate) fn install(program: &[Instruction], listen: Listen) -> io::Result<Option<OwnedFd>> {
    let spec = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    if listen == Listen::No {
        install_with(program, spec)?;
        return Ok(None);
    }
    let with_listener = spec | libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let fd = match install_with(program, with_listener | listen.wait_flag()) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            install_with(program, with_listener)?
        }
        other => other?,
    };
    // SAFETY: with NEW_LISTENER the call returns a new descriptor that has no other owner.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
}

fn install_with(program: &[Instruction], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let fprog = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: Instruction is repr(C) with the fields of sock_filter in order; the
    // kernel copies the program during the call and does not write to it.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const fprog)
    })
}

/// Sets no_new_privs on the calling thread (`prctl(2)`); it cannot be unset.
///
/// # Errors
/// `EINVAL` before Linux 3.5.
pub(crate) fn set_no_new_privs() -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }))
        .map(drop)
}

/// Whether a filter is in force in the calling thread (`PR_GET_SECCOMP`).
pub fn is_filtered() -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == 2 }
}

/// The answer to [`ask_outer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// No hold, or a hold that has been released.
    None,
    /// A supervisor holds this process.
    Supervised,
    /// A sealed filter holds this process.
    Sealed,
}

/// Asks whether the calling process is held, by a `sync_file_range` call that fails with
/// `EBADF` in the kernel and has another result only under a hold. The call needs no path, no
/// environment and no /proc, so it works in any chroot.
pub fn ask_outer(flags: u32, supervised_value: i64, sealed_errno: i32) -> Outer {
    match request(flags, 0, 0) {
        Ok(value) if value == supervised_value => Outer::Supervised,
        Err(errno) if errno == sealed_errno => Outer::Sealed,
        _ => Outer::None,
    }
}

/// Asks the sealed filter that holds the calling process for the `N` bytes of its run's
/// identity, each the errno of one call. Under a filter without an identity the bytes are
/// meaningless. Returns `None` if an answer is not a byte.
pub fn ask_identity<const N: usize>(flags: u32) -> Option<[u8; N]> {
    let mut identity = [0; N];
    for (at, byte) in (1..).zip(&mut identity) {
        *byte = u8::try_from(request(flags, at, 0).err().unwrap_or(0)).ok()?;
    }
    Some(identity)
}

/// Asks the supervisor that holds the calling process for what `offset` and `length` say, and
/// returns its answer, or its errno. The supervisor gets the id of the caller from the kernel,
/// in any namespace.
///
/// # Errors
/// An errno: the supervisor's, or `EBADF` of the kernel.
pub fn request(flags: u32, offset: i64, length: i64) -> Result<i64, i32> {
    // SAFETY: the call takes no pointers, and descriptor -1 is never open.
    let value = unsafe { libc::syscall(libc::SYS_sync_file_range, -1, offset, length, flags) };
    check(value).map_err(|error| error.raw_os_error().unwrap_or(0))
}
