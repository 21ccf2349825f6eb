//! Waits for Ctrl-C, so that a benchmark can clean up.
//!
//! The signals are handled, not blocked and read by signalfd(2): commands inherit a blocked mask
//! (std::process::Command keeps it), and a handler also works in a process with other threads.

use crate::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use synconce_sys::signals::is_ignored;

/// Makes descriptors readable when SIGINT, SIGTERM or SIGHUP arrives, until the value is dropped. A
/// signal that was ignored at the start, for instance by nohup(1), stays ignored.
pub(crate) struct SignalWatch {
    watched: Vec<Watched>,
}

/// One signal, and the descriptor that it makes readable.
struct Watched {
    signal: i32,
    readable: UnixStream,
    registered: SigId,
}

impl SignalWatch {
    /// Starts to watch.
    pub(crate) fn new() -> Result<Self, Error> {
        let signals = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
        let watched = signals.map(Watched::new).collect::<io::Result<_>>();
        Ok(Self { watched: watched.map_err(Error::io("handle", "signals"))? })
    }

    /// Fails if a signal has arrived.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.wait(None, Some(0)).map(|_| ())
    }

    /// Waits until `other` is readable, a signal arrives (an error) or the time in
    /// milliseconds has passed; returns whether `other` is readable.
    pub(crate) fn wait(
        &self,
        other: Option<BorrowedFd<'_>>,
        milliseconds: Option<i64>,
    ) -> Result<bool, Error> {
        let timeout =
            milliseconds.map(|ms| Timespec { tv_sec: ms / 1000, tv_nsec: (ms % 1000) * 1_000_000 });
        let signals = self.watched.iter().map(|watched| watched.readable.as_fd());
        let descriptors = signals.chain(other);
        let mut polled: Vec<PollFd<'_>> =
            descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        loop {
            match poll(&mut polled, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io("poll", "a process")(errno)),
                Ok(_) => break,
            }
        }
        let is_readable = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let arrived = self.watched.iter().zip(&polled).find(|(_, fd)| is_readable(fd));
        match arrived {
            Some((watched, _)) => Err(Error::Interrupted { signal: watched.signal }),
            None => Ok(polled.get(self.watched.len()).is_some_and(is_readable)),
        }
    }
}

impl Watched {
    fn new(signal: i32) -> io::Result<Self> {
        let (readable, writer) = UnixStream::pair()?;
        let registered = signal_hook::low_level::pipe::register(signal, writer)?;
        Ok(Self { signal, readable, registered })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.registered);
    }
}
