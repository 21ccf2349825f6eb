//! The specification of a program.

/// How a held call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeldAnswer {
    /// By a supervisor, through a seccomp user notification.
    Supervised,
    /// By the program itself, in the kernel: without a supervisor and its counts. A process that
    /// outlives the run stays held.
    Sealed,
}

/// The policy of one program. The rest of the policy (paths, file systems, programs) needs more
/// than the arguments that a filter can read; the supervisor has that part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// How held calls are answered.
    pub answer: HeldAnswer,
    /// Allow io_uring_setup(2), although no filter sees the syncs of an io_uring.
    pub io_uring_pass: bool,
    /// The identity that the handshake returns. Only sealed programs have one.
    pub identity: Option<Identity>,
    /// The size of a page in bytes: msync(2) refuses an address that is no multiple. 4096 on
    /// x86-64; a kernel for aarch64 is built for 4, 16 or 64 KiB.
    pub page_size: u32,
}

/// The identity of a run. A sealed program returns one byte per handshake.
pub type Identity = [u8; 16];

/// The flags that make `sync_file_range(-1, _, _, HANDSHAKE_FLAGS)` the question "am I held?"
/// (the bytes of "SYNC").
///
/// Without a hold the kernel returns `EBADF`, because it checks the descriptor before the
/// flags (fs/sync.c). Under a sealed hold the result is [`HANDSHAKE_SEALED_ERRNO`]. Under a
/// supervised hold the supervisor is notified. No program makes this call by accident, because
/// the kernel refuses these flags.
///
/// The offset selects the answer of a sealed program: for an offset from 1 to 16, the errno is that
/// byte of the run's [`Identity`], if the program has an identity.
pub const HANDSHAKE_FLAGS: u32 = u32::from_be_bytes(*b"SYNC");

/// `ENOTUNIQ`: a sealed program's answer to the handshake. The kernel's sync_file_range(2) never
/// returns `ENOTUNIQ`.
pub const HANDSHAKE_SEALED_ERRNO: u16 = libc::ENOTUNIQ as u16;

/// The offset of the handshake that asks whether `synconce-oci` holds a build step, by the step's
/// seccomp profile. Any other sealed program answers [`HANDSHAKE_SEALED_ERRNO`], because an
/// [`Identity`] has no byte with this number.
pub const HANDSHAKE_STEP: i64 = 0x103;

/// `ENOANO`: the answer to [`HANDSHAKE_STEP`] in a held build step.
pub const HANDSHAKE_STEP_ERRNO: u16 = libc::ENOANO as u16;
