//! Ctrl-C as something to wait for, so that a benchmark can clean up.

use crate::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Turns SIGINT, SIGTERM and SIGHUP into a readable descriptor while it lives.
pub(crate) struct Watch {
    woken: UnixStream,
    registered: Vec<SigId>,
}

impl Watch {
    /// Starts to watch.
    pub(crate) fn new() -> Result<Self, Error> {
        let (woken, writer) = UnixStream::pair().map_err(Error::io("open", "a socket pair"))?;
        let registered = [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .map(|signal| signal_hook::low_level::pipe::register(signal, writer.try_clone()?))
            .collect::<Result<_, std::io::Error>>()
            .map_err(Error::io("handle", "signals"))?;
        Ok(Self { woken, registered })
    }

    /// Fails once a signal has arrived.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.wait(None, Some(0)).map(|_| ())
    }

    /// Waits until `other` is readable, a signal arrives (an error) or the
    /// time in milliseconds is over; says whether `other` is readable.
    pub(crate) fn wait(
        &self,
        other: Option<BorrowedFd<'_>>,
        milliseconds: Option<i64>,
    ) -> Result<bool, Error> {
        let timeout =
            milliseconds.map(|ms| Timespec { tv_sec: ms / 1000, tv_nsec: (ms % 1000) * 1_000_000 });
        loop {
            let mut watched = vec![PollFd::from_borrowed_fd(self.woken.as_fd(), PollFlags::IN)];
            watched.extend(other.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            match poll(&mut watched, timeout.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Error::io("poll", "a process")(errno)),
                Ok(_) if !watched[0].revents().is_empty() => return Err(Error::Interrupted),
                Ok(_) => return Ok(watched.get(1).is_some_and(|fd| !fd.revents().is_empty())),
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
