//! The calls that a sealed hold answers. [`crate::program()`] and the rules in an OCI seccomp
//! profile are both made from [`SEALED`].

use crate::call::Call;
use Call::{Fdatasync, Fsync, IoUringSetup, Msync, Sync, SyncFileRange, Syncfs};

/// How a sealed hold answers a call that the kernel would accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedAnswer {
    /// Success.
    Success,
    /// Success, or the answer to the handshake if the flags are [`crate::HANDSHAKE_FLAGS`].
    SuccessOrHandshake,
    /// Success with [`crate::args::MS_SYNC`]. Without this flag, msync(2) syncs nothing, and the
    /// kernel does the call.
    SuccessIfSync,
    /// Failure with this errno. Programs then use other calls, which are held.
    Refusal(u16),
}

/// Every call that a sealed hold answers, in the order of a profile's rules. The order is unusual
/// on purpose: older crun caches a compiled filter under a checksum of its rules without
/// `errnoRet`, and the profile must not have the checksum of another profile.
pub const SEALED: [(&[Call], SealedAnswer); 4] = [
    (&[Syncfs, Fsync, Sync, Fdatasync], SealedAnswer::Success),
    (&[SyncFileRange], SealedAnswer::SuccessOrHandshake),
    (&[Msync], SealedAnswer::SuccessIfSync),
    (&[IoUringSetup], SealedAnswer::Refusal(libc::ENOSYS as u16)),
];
