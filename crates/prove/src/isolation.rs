//! A mount namespace of our own.
//!
//! A process that makes a namespace has a copy of every mount that it sees, and keeps a file system
//! alive that is unmounted here: a disk that is to be cut would be busy. What others make must not have
//! ours, and what our own workloads make must learn of an unmount.

use crate::Result;
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountPropagationFlags, mount_change};

/// Enters it; for a process that has one thread yet.
pub(crate) fn enter() -> Result<()> {
    let failed = |error: String| format!("cannot enter a mount namespace: {error}");
    unshare(CloneFlags::CLONE_NEWNS).map_err(|errno| failed(errno.to_string()))?;
    // Nothing goes up to the machine's own; all that is mounted from here on is shared further down.
    for flags in [MountPropagationFlags::DOWNSTREAM, MountPropagationFlags::SHARED] {
        mount_change("/", flags | MountPropagationFlags::REC)
            .map_err(|errno| failed(errno.to_string()))?;
    }
    Ok(())
}
