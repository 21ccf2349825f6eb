//! A mount namespace for this process.
//!
//! Creating a mount namespace copies every visible mount, and a copied mount keeps a file
//! system busy that was unmounted here: the disk could not be cut. Namespaces of other
//! processes must not copy the mounts made here, and namespaces of the workloads must receive
//! the unmounts made here.

use crate::Result;
use rustix::mount::{MountPropagationFlags, mount_change};
use synconce_sys::namespace::{UnshareFlags, unshare};

/// Enters a new mount namespace. The process must still be single-threaded.
pub(crate) fn enter() -> Result<()> {
    let failed = |error: String| format!("cannot enter a mount namespace: {error}");
    unshare(UnshareFlags::NEWNS).map_err(|error| failed(error.to_string()))?;
    // No mount propagates to the machine's namespace; every mount made from here on is shared
    // with namespaces below.
    for flags in [MountPropagationFlags::DOWNSTREAM, MountPropagationFlags::SHARED] {
        mount_change("/", flags | MountPropagationFlags::REC)
            .map_err(|errno| failed(errno.to_string()))?;
    }
    Ok(())
}
