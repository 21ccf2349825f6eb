//! The specification of a program.

/// How a held call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeldAnswer {
    /// By a supervisor, through a seccomp user notification.
    Supervised,
    /// By the program itself, inside the kernel: without cost, without counts, and irrevocably
    /// for a process that outlives the run.
    Sealed,
}

/// The policy of one program. The rest of the policy (paths, file systems, programs) needs
/// more than the words that a filter can read, and is in the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// How held calls are answered.
    pub answer: HeldAnswer,
    /// Allow programs to set up io_uring, whose syncs no filter can stop.
    pub io_uring_pass: bool,
    /// The identity that the handshake returns to processes under the program. Sealed only.
    pub identity: Option<Identity>,
    /// The size of a page in bytes: msync(2) refuses other addresses. 4096 on x86-64; a kernel
    /// for aarch64 is built for 4, 16 or 64 KiB.
    pub page_size: u32,
}

/// The identity of a run, which a sealed program returns byte by byte.
pub type Identity = [u8; 16];

/// The flags that make `sync_file_range(-1, _, _, HANDSHAKE_FLAGS)` the question "am I held?"
/// (the bytes of "SYNC").
///
/// Without a hold the kernel returns `EBADF`, because it checks the descriptor before the
/// flags (fs/sync.c). Under a sealed hold the result is [`HANDSHAKE_SEALED_ERRNO`]. Under a
/// supervised hold the supervisor is notified. No program makes this call by accident, because
/// the kernel refuses these flags.
///
/// The offset selects what a sealed program returns: from 1 on it is the number of a byte of
/// the run's [`Identity`], which is then the errno.
pub const HANDSHAKE_FLAGS: u32 = u32::from_be_bytes(*b"SYNC");

/// `ENOTUNIQ`: a sealed program's answer to the handshake. In the kernel, sync_file_range(2)
/// never returns it.
pub const HANDSHAKE_SEALED_ERRNO: u16 = libc::ENOTUNIQ as u16;

/// The offset of the handshake that asks whether the hold is that of a build step, which
/// `synconce-oci` adds to the step's profile. Any other sealed program answers
/// [`HANDSHAKE_SEALED_ERRNO`], because it has no byte of an [`Identity`] with this number.
pub const HANDSHAKE_STEP: i64 = 0x103;

/// `ENOANO`: the answer to [`HANDSHAKE_STEP`] in a held build step.
pub const HANDSHAKE_STEP_ERRNO: u16 = libc::ENOANO as u16;
