//! The socket on which doctor listens for the runtimes of build steps.

use rustix::fs::{CWD, Mode, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use synconce_durable::standard_paths::make_runtime;
use synconce_durable::step_watch;

/// The socket to which runtimes connect. Dropping it ends it and removes its name.
#[derive(Debug)]
pub(crate) struct StepSocket {
    pub(super) socket: Arc<OwnedFd>,
    path: PathBuf,
    /// The directory of the socket, if it was made for the socket.
    made: Option<PathBuf>,
}

/// The length of the queue of connections (listen(2)).
const BACKLOG: i32 = 128;

impl StepSocket {
    /// Opens the socket, or returns why not, for the report. Returns `None` if this doctor can have
    /// no socket, for example because its path is too long: then no runtime asks.
    pub(crate) fn open() -> Option<Result<Self, String>> {
        match Self::listen() {
            Ok(opened) => Some(Ok(opened)),
            Err(error) => matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AlreadyExists)
                .then(|| Err("another `synconce doctor` watches them".to_owned())),
        }
    }

    fn listen() -> io::Result<Self> {
        let path = step_watch::socket().ok_or(ErrorKind::NotFound)?;
        let directory = path.parent().filter(|directory| !directory.exists());
        let made = directory.map(ToOwned::to_owned);
        if let Some(directory) = &made {
            make_runtime(directory)?;
        }
        remove_left(&path)?;
        // The socket is renamed to its final name once it listens. So a socket of that name that
        // does not listen was left by a doctor that was killed.
        let early = path.with_extension(std::process::id().to_string());
        let socket = socket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&early)?)?;
        let named = rustix::fs::chmod(&early, Mode::RUSR | Mode::WUSR)
            .and_then(|()| rustix::net::listen(&socket, BACKLOG))
            .and_then(|()| renameat_with(CWD, &early, CWD, &path, RenameFlags::NOREPLACE));
        if named.is_err() {
            let _ = fs::remove_file(early);
        }
        named?;
        Ok(Self { socket: Arc::new(socket), path, made })
    }
}

/// Removes the socket that a doctor whose supervisor was killed has left, if there is one.
pub(crate) fn remove_left_socket() {
    // A doctor that listens keeps its socket.
    let _ = step_watch::socket().map(|path| remove_left(&path));
}

/// Removes the socket at `path`, unless a doctor listens there.
fn remove_left(path: &Path) -> io::Result<()> {
    match rustix::net::connect(socket()?, &SocketAddrUnix::new(path)?) {
        Ok(()) => return Err(ErrorKind::AddrInUse.into()),
        Err(Errno::CONNREFUSED) => fs::remove_file(path)?,
        Err(_) => {}
    }
    Ok(())
}

fn socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

impl Drop for StepSocket {
    fn drop(&mut self) {
        // While the socket listens, no other doctor takes the name.
        let _ = fs::remove_file(&self.path);
        // A thread may wait for connections.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
        if let Some(directory) = &self.made {
            // It stays if other files are there by now.
            let _ = fs::remove_dir(directory);
        }
    }
}
