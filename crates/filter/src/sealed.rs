//! The calls that a sealed hold answers. [`crate::program`] and the rules of an OCI seccomp
//! profile are both made from this list.

use crate::call::Call;
use Call::{Fdatasync, Fsync, IoUringSetup, Msync, Sync, SyncFileRange, Syncfs};

/// How a sealed hold answers a call that the kernel would accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedAnswer {
    /// Success.
    Success,
    /// Success, or the answer to the handshake if the flags are [`crate::HANDSHAKE_FLAGS`].
    SuccessOrHandshake,
    /// Success with [`crate::args::MS_SYNC`]. Without that flag, msync(2) syncs nothing: its
    /// other flags invalidate mappings, or only check the range.
    SuccessIfSync,
    /// This errno, so that programs fall back to calls that are held.
    Refusal(u16),
}

/// Every call that a sealed hold answers, in the order of a profile's rules. The order is
/// unusual on purpose: older crun caches compiled filters under a checksum that omits
/// `errnoRet`, and no other profile should have the same checksum.
pub const SEALED: [(&[Call], SealedAnswer); 4] = [
    (&[Syncfs, Fsync, Sync, Fdatasync], SealedAnswer::Success),
    (&[SyncFileRange], SealedAnswer::SuccessOrHandshake),
    (&[Msync], SealedAnswer::SuccessIfSync),
    (&[IoUringSetup], SealedAnswer::Refusal(libc::ENOSYS as u16)),
];
