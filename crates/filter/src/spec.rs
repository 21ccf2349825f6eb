//! What a program is asked to do.

/// Who answers a call that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// A supervisor, over a seccomp user notification.
    Supervised,
    /// The program itself, inside the kernel: no cost, no accounts, and no
    /// path back for a process that outlives the run.
    Sealed,
}

/// The policy of one program. The rest of the policy (paths, file systems,
/// programs) needs more than the words a filter can read; the supervisor has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Who answers.
    pub answer: Answer,
    /// Let programs set up io_uring, whose syncs no filter sees.
    pub io_uring_pass: bool,
    /// Report execve(2) and execveat(2), for rules by program. Supervised only.
    pub watch_exec: bool,
    /// Tells processes under the program which run they are in, by the handshake. Sealed only.
    pub identity: Option<Identity>,
}

/// The identity of a run, which a sealed program answers byte by byte.
pub type Identity = [u8; 16];

/// The flags that make `sync_file_range(-1, _, _, HANDSHAKE_FLAGS)` the question
/// "am I held?" (the bytes of "SYNC").
///
/// Without a hold the kernel answers `EBADF`, because it looks at the
/// descriptor before the flags (fs/sync.c); under a sealed hold the answer is
/// [`HANDSHAKE_SEALED_ERRNO`]; under a supervised one the supervisor is notified.
/// No program makes this call by accident: the flags have bits that the kernel
/// refuses.
///
/// The offset asks a sealed program for more: from 1 on it is the number of a byte of the
/// run's [`Identity`], which is then the errno.
pub const HANDSHAKE_FLAGS: u32 = u32::from_be_bytes(*b"SYNC");

/// `ENOTUNIQ`: what a sealed program answers to the handshake. No path of
/// sync_file_range(2) in the kernel gives it.
pub const HANDSHAKE_SEALED_ERRNO: u16 = 76;
