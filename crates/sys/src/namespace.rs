//! Namespaces of the calling process (namespaces(7)).

use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
pub use rustix::thread::UnshareFlags;
use std::io;

/// `SIOCGIFFLAGS` and `SIOCSIFFLAGS` (linux/sockios.h).
const GET_FLAGS: Opcode = 0x8913;
const SET_FLAGS: Opcode = 0x8914;

/// `struct ifreq` with flags (netdevice(7)).
#[repr(C)]
struct InterfaceFlags {
    name: [u8; libc::IFNAMSIZ],
    flags: i16,
    /// The rest of the union.
    rest: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceFlags>() == size_of::<libc::ifreq>());

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

/// Raises the loopback interface of the process's network namespace, where the interface of a new
/// namespace is down. The kernel gives the interface the addresses 127.0.0.1 and ::1.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` in the user namespace of the network namespace.
pub fn raise_loopback() -> io::Result<()> {
    let mut request = InterfaceFlags { name: [0; libc::IFNAMSIZ], flags: 0, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    let kind = SocketType::DGRAM;
    let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
    // SAFETY: the opcode takes an `ifreq`, which this is, and writes the flags.
    unsafe { ioctl(&socket, Updater::<GET_FLAGS, _>::new(&mut request)) }?;
    request.flags |= libc::IFF_UP as i16;
    // SAFETY: the opcode takes an `ifreq`, which this is, and only reads it.
    unsafe { ioctl(&socket, Updater::<SET_FLAGS, _>::new(&mut request)) }?;
    Ok(())
}

/// Returns whether this process is in the initial user namespace, whose root has all
/// privileges that the kernel grants.
pub fn is_first_user_namespace() -> bool {
    // user_namespaces(7): in the initial namespace, one line maps all ids to themselves.
    let map = std::fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}
