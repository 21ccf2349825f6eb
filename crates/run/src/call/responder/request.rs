//! Requests of processes of the run: checkpoints, and real syncs.

use super::Responder;
use super::callers_file::file_of;
use crate::call::policy::PendingCall;
use crate::commit::checkpoints;
use crate::request::held::{ACCEPTED, Request};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use std::os::fd::OwnedFd;
use synconce_sys::notify::Answer;
use synconce_sys::peer::Peer;

impl Responder {
    /// Does what the caller asks for, and returns the answer.
    pub(super) fn handle_request(&self, pending: &PendingCall, request: Request) -> Answer {
        let thread = pending.notification.thread;
        let is_done = match request {
            Request::Commit(fd) => {
                let served = own_socket(thread, fd)
                    .map(|socket| checkpoints::serve(&self.state, socket, thread));
                if let Err(errno) = served {
                    return Answer::Errno(errno.raw_os_error());
                }
                true
            }
            Request::Real => self.real.add(thread),
            Request::Commits => self.options.commit,
        };
        let refused = Answer::Errno(Errno::ACCESS.raw_os_error());
        if is_done { Answer::Value(ACCEPTED) } else { refused }
    }
}

/// Returns a duplicate of the caller's descriptor `fd`, if it is one of a pair of sockets that
/// the calling process has made. On any other socket the receiver of a message would see this
/// process as its sender, with rights that the caller may not have. A process that asks has
/// one thread, whose id is that of the process.
///
/// # Errors
/// Too few descriptors or too little memory; `EACCES` in every other case.
fn own_socket(thread: u32, fd: i32) -> Result<OwnedFd, Errno> {
    let socket = file_of(thread, fd).map_err(|errno| match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => errno,
        _ => Errno::ACCESS,
    })?;
    let is_own = socket_type(&socket) == Ok(SocketType::SEQPACKET)
        && Peer::read(&socket).is_ok_and(|peer| peer.pid == thread);
    if is_own { Ok(socket) } else { Err(Errno::ACCESS) }
}
