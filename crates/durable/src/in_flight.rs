//! Open files that no other program finds.
//!
//! fuser(1) and lsof(8) find a file by the descriptors of processes, and `fuser --kill --mount`,
//! which builders of images call before an unmount, kills each process that it finds. A file that
//! was sent to a socket and not received has no descriptor (unix(7)).

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use synconce_sys::descriptors;

/// An open file, kept in a socket.
#[derive(Debug)]
pub(crate) enum InFlight {
    /// The socket that has not received the file, and a descriptor that is closed if none is free
    /// for the file.
    Sent(OwnedFd, Mutex<Option<OwnedFd>>),
    /// The file itself: the kernel limits how many files of a user are in flight
    /// (`ETOOMANYREFS`, unix(7)).
    Kept(OwnedFd),
}

impl InFlight {
    /// Keeps `file`.
    pub(crate) fn keep(file: OwnedFd) -> Self {
        match send(&file) {
            Ok((from, to)) => Self::Sent(to, Mutex::new(Some(from))),
            Err(_) => Self::Kept(file),
        }
    }

    /// Returns a descriptor of the file. It shares the open file, and with it the write-back
    /// errors that are not reported yet.
    ///
    /// # Errors
    /// Those of recvmsg(2) and dup(2): no descriptor is left.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Sent(socket, spare) => match peek(socket) {
                Err(Errno::MFILE) => {
                    drop(spare.lock().unwrap_or_else(PoisonError::into_inner).take());
                    peek(socket)
                }
                other => other,
            },
            Self::Kept(file) => rustix::io::fcntl_dupfd_cloexec(file, 0),
        }
    }
}

/// Sends `file` from a new socket to another, and returns both.
fn send(file: &OwnedFd) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (from, to) =
        socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    descriptors::send(&from, file.as_fd())?;
    Ok((from, to))
}

/// Receives the file, and leaves it in the socket as well (`MSG_PEEK`).
fn peek(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    descriptors::receive(socket, RecvFlags::PEEK)?.ok_or(Errno::MFILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_file_in_flight_has_no_descriptor_and_can_be_had_again_and_again() {
        let file = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let kept = InFlight::keep(file.into());
        assert!(matches!(kept, InFlight::Sent(..)));
        let is_it = |entry: std::fs::DirEntry| {
            let found = rustix::fs::stat(entry.path());
            found.is_ok_and(|it| (it.st_dev, it.st_ino) == (stat.st_dev, stat.st_ino))
        };
        assert!(!std::fs::read_dir("/proc/self/fd").unwrap().flatten().any(is_it));
        for _ in 0..2 {
            let file = kept.descriptor().unwrap();
            assert!(file.as_raw_fd() >= 0);
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_ino, stat.st_ino);
        }
    }
}
