//! The socket of a supervisor. A process of a run connects to find out whether the commit is still
//! to come; a process outside the run connects to ask for a checkpoint.
//!
//! The socket has an abstract name (unix(7)), made from the run's id. It needs neither a path
//! nor an environment nor /proc, so it is reached from any chroot and from every namespace
//! except another network namespace. The supervisor listens until the command ends.
//!
//! A sealed filter outlives its run, after which no commit follows. So the filter returns the
//! run's identity: the name of the socket, and a secret that the supervisor sends there. The
//! secret proves that the supervisor answers: names of sockets are visible in /proc/net/unix,
//! and any process may bind a free name. A process outside the run checks the user instead.

use crate::process::process_tree;
use crate::report::protocol;
use crate::report::run_error::RunError;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use synconce_filter::Identity;
use synconce_sys::peer::Peer;

/// The bytes of an identity that name the socket; the other bytes are the secret.
const NAME_LENGTH: usize = 8;
type Name = [u8; NAME_LENGTH];
/// The length of the queue of connections that the supervisor has not accepted yet
/// (listen(2)).
const BACKLOG: i32 = 128;
/// Limits the wait for a process that does not answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a process sends to ask for a checkpoint.
const COMMIT: &[u8] = b"commit";

/// The socket of a supervisor. Dropping it refuses new connections.
#[derive(Debug)]
pub(crate) struct Presence {
    identity: Identity,
    socket: OwnedFd,
}

impl AsFd for Presence {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Presence {
    /// Opens the socket of the run `id`, with a new secret.
    pub(crate) fn new(id: &str) -> Result<Self, Errno> {
        let mut identity = Identity::default();
        let length = rustix::rand::getrandom(&mut identity, rustix::rand::GetRandomFlags::empty())?;
        if length < identity.len() {
            return Err(Errno::AGAIN);
        }
        identity[..NAME_LENGTH].copy_from_slice(&name_of(id));
        let socket = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        rustix::net::bind(&socket, &address(&name_of(id))?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { identity, socket })
    }

    /// Returns the identity that the sealed filter has to return.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Sends the secret to the processes that have connected. Returns the connections of those
    /// that may ask for a checkpoint: processes of root, of the user of the run, and of the
    /// run itself. Refuses a checkpoint to the others. Does not block.
    ///
    /// # Errors
    /// Those of accept(2), such as `EMFILE`.
    pub(crate) fn accept(&self) -> Result<Vec<OwnedFd>, Errno> {
        let mut allowed = Vec::new();
        loop {
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(caller) => {
                    let secret = &self.identity[NAME_LENGTH..];
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    let is_sent = rustix::net::send(&caller, secret, flags).is_ok();
                    if is_sent && is_allowed(&caller) {
                        allowed.push(caller);
                    } else if is_sent {
                        protocol::refuse(caller, RunError::NotAllowed);
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Ok(allowed),
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_allowed(caller: &OwnedFd) -> bool {
    let Ok(peer) = Peer::read(caller) else { return false };
    let supervisor = std::process::id();
    [0, rustix::process::geteuid().as_raw()].contains(&peer.user)
        || process_tree::ancestors(peer.pid).any(|ancestor| ancestor.pid == supervisor)
}

/// Waits until the process at the other end asks for a checkpoint. Returns `false` if it does
/// not.
pub(crate) fn asks_for_commit(caller: &OwnedFd) -> bool {
    let mut text = [0; COMMIT.len()];
    set_socket_timeout(caller, Timeout::Recv, Some(PATIENCE)).is_ok()
        && rustix::net::recv(caller, &mut text, RecvFlags::empty()).is_ok()
        && text == COMMIT
}

/// Returns whether the supervisor of the run `identity` still waits for its command.
pub(crate) fn is_alive(identity: &Identity) -> bool {
    connect_inside(identity).is_ok()
}

/// Connects to the supervisor of the sealed run `identity`, which this process is in.
///
/// # Errors
/// `ECONNREFUSED` if the command has ended, or in another network namespace.
pub(crate) fn connect_inside(identity: &Identity) -> Result<OwnedFd, Errno> {
    let (name, secret) = identity.split_at(NAME_LENGTH);
    let name = name.try_into().map_err(|_| Errno::INVAL)?;
    let (socket, received) = connect(name)?;
    if received == secret { Ok(socket) } else { Err(Errno::CONNREFUSED) }
}

/// Why a process outside of a run cannot connect to its supervisor.
#[derive(Debug)]
pub(crate) enum Unreached {
    Call(Errno),
    /// The socket and the marker of the run belong to different users.
    OfTwoUsers {
        socket: u32,
        marker: u32,
    },
}

impl From<Errno> for Unreached {
    fn from(errno: Errno) -> Self {
        Self::Call(errno)
    }
}

/// Connects to the supervisor of the run `id`, which this process is not in. `owner` is the run's
/// user, if it is known.
///
/// # Errors
/// `ECONNREFUSED` if no such run is in flight in this network namespace; `EPERM` if the socket
/// belongs to another user, unless this process is root; [`Unreached::OfTwoUsers`] if the socket is
/// not the owner's.
pub(crate) fn connect_outside(id: &str, owner: Option<u32>) -> Result<OwnedFd, Unreached> {
    let name = name_of(id);
    let (socket, _) = connect(name)?;
    let us = rustix::process::geteuid();
    let peer = Peer::read(&socket).map_err(|_| Errno::CONNREFUSED)?.user;
    // The supervisor has ended, and another user has bound the free name. Or another user has made
    // a marker of this id.
    if let Some(marker) = owner.filter(|owner| *owner != peer) {
        return Err(Unreached::OfTwoUsers { socket: peer, marker });
    }
    match peer {
        user if user == us.as_raw() => Ok(socket),
        // In a user namespace root is not visible as root, so root connects as the user.
        user if us.is_root() => {
            Ok(as_user(user, || connect(name)).map_or(socket, |(again, _)| again))
        }
        _ => Err(Errno::PERM.into()),
    }
}

/// Returns what `act` does with the effective user id `user` (`SO_PEERCRED` shows that id).
fn as_user<T>(user: u32, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let become_user = |user| set_thread_res_uid(None, user, None);
    let us = rustix::process::geteuid();
    become_user(Uid::from_raw(user))?;
    let done = act();
    become_user(us)?;
    done
}

/// Asks the supervisor at the other end for a checkpoint.
pub(crate) fn ask_for_commit(supervisor: &OwnedFd) -> Result<(), Errno> {
    // No limit for the checkpoint itself.
    set_socket_timeout(supervisor, Timeout::Recv, None)?;
    rustix::net::send(supervisor, COMMIT, SendFlags::NOSIGNAL).map(drop)
}

/// Connects to the socket `name`. Returns the secret that the supervisor has sent.
fn connect(name: Name) -> Result<(OwnedFd, Vec<u8>), Errno> {
    let socket = socket(SocketFlags::CLOEXEC)?;
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, timeout, Some(PATIENCE))?;
    }
    rustix::net::connect(&socket, &address(&name)?)?;
    let mut secret = Identity::default();
    let (length, _) = rustix::net::recv(&socket, &mut secret, RecvFlags::empty())?;
    Ok((socket, secret[..length].to_vec()))
}

/// Returns the bytes that name the socket of the run `id` (FNV-1a, so that every version of
/// synconce makes the same name).
fn name_of(id: &str) -> Name {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    id.bytes().fold(0xcbf2_9ce4_8422_2325, add).to_be_bytes()
}

fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn address(name: &Name) -> Result<SocketAddrUnix, Errno> {
    let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("synconce/{name}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an id that no test in another process has: all names of sockets are in one
    /// network namespace.
    fn own(id: &str) -> String {
        format!("{id} {}", std::process::id())
    }

    /// Calls `ask` while the socket of the run `id` is served. Returns its result, and whether
    /// each process that was allowed to asked for a checkpoint.
    fn served<T: Send>(id: &str, ask: impl FnOnce(Identity) -> T + Send) -> (T, Vec<bool>) {
        let presence = Presence::new(&own(id)).unwrap();
        let identity = presence.identity();
        std::thread::scope(|scope| {
            let asked = scope.spawn(move || ask(identity));
            let mut seen = Vec::new();
            while !asked.is_finished() {
                seen.extend(presence.accept().unwrap().iter().map(asks_for_commit));
            }
            (asked.join().unwrap(), seen)
        })
    }

    #[test]
    fn a_presence_ends_with_its_value() {
        let (identity, seen) = served("one", |identity| {
            assert!((0..3).all(|_| is_alive(&identity)));
            identity
        });
        assert!(!is_alive(&identity));
        assert_eq!(seen, [false; 3]);
        assert!(connect_outside(&own("one"), None).is_err());
    }

    #[test]
    fn a_socket_of_that_name_without_the_secret_is_no_presence() {
        served("two", |mut other| {
            other[NAME_LENGTH] ^= 1;
            assert!(!is_alive(&other));
        });
    }

    #[test]
    fn a_process_that_has_the_id_or_the_identity_can_ask_for_a_checkpoint() {
        let ((), seen) = served("three", |identity| {
            // One after the other: the server waits for the question of each.
            ask_for_commit(&connect_outside(&own("three"), None).unwrap()).unwrap();
            ask_for_commit(&connect_inside(&identity).unwrap()).unwrap();
            assert!(connect_outside(&own("four"), None).is_err());
        });
        assert_eq!(seen, [true; 2]);
    }
}
