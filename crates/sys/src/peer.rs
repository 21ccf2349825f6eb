//! The process at the other end of a Unix socket (`SO_PEERCRED`, unix(7)).

use crate::check;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// The credentials of the process that connected the other end, bound it to a name, or made the
/// socket pair. The kernel translates them for the namespaces of the calling process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process id, or 0 if the process is in no pid namespace that is visible here.
    pub pid: u32,
    /// The effective user id, or the overflow id if the user namespace has none for it.
    pub user: u32,
}

impl Peer {
    /// Returns the peer of `socket`.
    ///
    /// rustix has no pid 0 in its type for these credentials, so this module makes the call.
    ///
    /// # Errors
    /// Those of getsockopt(2), such as `ENOTSOCK`.
    pub fn read(socket: impl AsFd) -> io::Result<Self> {
        let mut found = MaybeUninit::<libc::ucred>::zeroed();
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the kernel writes at most `length` bytes into `found`.
        let read = unsafe {
            let (value, length) = (found.as_mut_ptr().cast(), &raw mut length);
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, value, length)
        };
        check(libc::c_long::from(read))?;
        // SAFETY: any bytes are a valid `ucred`, and all were zeroed.
        let found = unsafe { found.assume_init() };
        Ok(Self { pid: found.pid.cast_unsigned(), user: found.uid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    #[test]
    fn the_peer_of_a_pair_is_the_process_that_made_it_and_other_files_have_none() {
        let (one, _other) = UnixStream::pair().unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(Peer::read(&one).unwrap(), Peer { pid: std::process::id(), user });
        assert!(Peer::read(std::fs::File::open("/dev/null").unwrap()).is_err());
        let unconnected = Peer::read(UnixDatagram::unbound().unwrap()).unwrap();
        assert_eq!(unconnected.pid, 0);
    }
}
