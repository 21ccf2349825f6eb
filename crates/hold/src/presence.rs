//! The socket by which a process in a sealed run finds out that its run goes on.
//!
//! A sealed filter outlives its run, after which no commit follows. The filter returns the
//! run's identity: the name of an abstract socket (unix(7)) on which the supervisor listens
//! until the command ends, and a secret that the supervisor sends there. Neither needs a path,
//! an environment or /proc, so both work in any chroot and in every namespace except another
//! network namespace.
//!
//! The secret proves that the supervisor answers: names of sockets are visible in
//! /proc/net/unix, and any process may bind a free name.

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use synconce_filter::Identity;

/// The bytes of an identity that name the socket; the other bytes are the secret.
const NAME_LENGTH: usize = 8;
/// The length of the queue of connections that the supervisor has not accepted yet
/// (listen(2)).
const BACKLOG: i32 = 128;
/// Limits the wait for a socket that does not belong to the supervisor.
const PATIENCE: Duration = Duration::from_secs(60);

/// The socket of a supervisor. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct Presence {
    identity: Identity,
    socket: Arc<OwnedFd>,
}

impl Presence {
    /// Opens a socket for a new identity.
    pub(crate) fn new() -> Result<Self, Errno> {
        let mut identity = Identity::default();
        let length = rustix::rand::getrandom(&mut identity, rustix::rand::GetRandomFlags::empty())?;
        if length < identity.len() {
            return Err(Errno::AGAIN);
        }
        let socket = socket()?;
        rustix::net::bind(&socket, &address(&identity)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { identity, socket: Arc::new(socket) })
    }

    /// Returns the identity that the sealed filter has to return.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Answers on a thread. Without a thread no process can find out that the run goes on.
    pub(crate) fn answer(&self) {
        let (socket, identity) = (Arc::clone(&self.socket), self.identity);
        let answer = move || loop {
            match rustix::net::accept_with(&socket, SocketFlags::CLOEXEC) {
                Ok(caller) => {
                    let secret = &identity[NAME_LENGTH..];
                    let _ = rustix::net::send(&caller, secret, SendFlags::NOSIGNAL);
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        };
        let _ = thread::Builder::new().name("presence".into()).stack_size(64 * 1024).spawn(answer);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // Refuses new connections, and ends the thread.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
    }
}

/// Returns whether the supervisor of the run `identity` still waits for its command.
pub(crate) fn is_alive(identity: &Identity) -> bool {
    let ask = || -> Result<bool, Errno> {
        let socket = socket()?;
        for timeout in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, timeout, Some(PATIENCE))?;
        }
        rustix::net::connect(&socket, &address(identity)?)?;
        let mut answer = Identity::default();
        let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
        Ok(answer[..length] == identity[NAME_LENGTH..])
    };
    ask().unwrap_or(false)
}

fn socket() -> Result<OwnedFd, Errno> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    rustix::net::socket_with(family, SocketType::SEQPACKET, flags, None)
}

fn address(identity: &Identity) -> Result<SocketAddrUnix, Errno> {
    let name: String = identity[..NAME_LENGTH].iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("synconce/{name}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_presence_ends_with_its_value() {
        let presence = Presence::new().unwrap();
        let identity = presence.identity();
        presence.answer();
        assert!((0..3).all(|_| is_alive(&identity)));
        drop(presence);
        assert!(!is_alive(&identity));
    }

    #[test]
    fn a_socket_of_that_name_without_the_secret_is_no_presence() {
        let presence = Presence::new().unwrap();
        presence.answer();
        let mut other = presence.identity();
        other[NAME_LENGTH] ^= 1;
        assert!(!is_alive(&other));
    }
}
