//! Requests of processes of the run: checkpoints, and real syncs.

use super::{Reply, Responder, file_of};
use crate::checkpoints;
use crate::held::{ACCEPTED, Request};
use crate::policy::PendingCall;
use crate::process_tree::process_of;
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use std::os::fd::OwnedFd;
use synconce_sys::notify::Answer;
use synconce_sys::peer::Peer;

impl Responder {
    /// Does what the caller asks for, and returns the reply.
    pub(super) fn handle_request(&self, pending: &PendingCall, request: Request) -> Reply {
        let thread = pending.notification.thread;
        let is_done = match request {
            Request::Commit(fd) => {
                let socket = own_socket(thread, fd);
                let is_own = socket.is_some();
                socket.into_iter().for_each(|socket| checkpoints::serve(&self.state, socket));
                is_own
            }
            // Without /proc no call is held, and every sync is real.
            Request::Real => !self.proc_is_ours || self.real.add(thread),
        };
        let refused = Answer::Errno(Errno::ACCESS.raw_os_error());
        if is_done { Answer::Value(ACCEPTED) } else { refused }.into()
    }
}

/// Returns a duplicate of the caller's descriptor `fd`, if it is one of a pair of sockets that
/// the calling process has made. On any other socket the receiver of a message would see this
/// process as its sender, with rights that the caller may not have.
fn own_socket(thread: u32, fd: i32) -> Option<OwnedFd> {
    let socket = file_of(thread, fd)?;
    let is_own = socket_type(&socket) == Ok(SocketType::SEQPACKET)
        && Peer::of(&socket).is_ok_and(|peer| Some(peer.pid) == process_of(thread));
    is_own.then_some(socket)
}
