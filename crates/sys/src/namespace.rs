//! Namespaces of the calling process (namespaces(7)).

pub use rustix::thread::UnshareFlags;
use std::io;

/// Moves the calling process to new namespaces (unshare(2)). With `NEWUSER` the process must
/// have one thread; with `NEWPID` only its future children are in the new namespace.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`; `ENOSPC` at the limit of namespaces; `EINVAL` also for
/// `FILES`, which would separate the threads' descriptors.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    if flags.contains(UnshareFlags::FILES) {
        return Err(rustix::io::Errno::INVAL.into());
    }
    // SAFETY: the threads keep one table of descriptors, the only contract of the call.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Returns whether this process is in the initial user namespace, whose root has all
/// privileges that the kernel grants.
pub fn is_first_user_namespace() -> bool {
    // user_namespaces(7): in the initial namespace, one line maps all ids to themselves.
    let map = std::fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}
