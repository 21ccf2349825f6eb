//! Progress and cancellation of long work.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Receives progress and answers whether to continue; called from several threads.
pub trait Progress: Sync {
    /// Adds to the numbers of finished entries and bytes of content.
    fn add(&self, entries: u64, bytes: u64);

    /// Returns whether the work must end early, with `ECANCELED`; called between entries and
    /// within long files.
    fn cancelled(&self) -> bool {
        false
    }

    /// Returns a descriptor that is readable from the cancellation on. Without a descriptor, a
    /// cancellation does not end a [`wait_until_ready`].
    fn cancellation(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Waits until `fd` is ready for `events`, or has an error or a hang-up.
///
/// # Errors
/// The work is cancelled (`ECANCELED`); those of `poll(2)`.
pub fn wait_until_ready(
    fd: BorrowedFd<'_>,
    events: PollFlags,
    progress: &dyn Progress,
) -> io::Result<()> {
    let mut polled = vec![PollFd::from_borrowed_fd(fd, events)];
    let cancellation = progress.cancellation();
    polled.extend(cancellation.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    while !progress.cancelled() {
        match poll(&mut polled, None) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) if polled[0].revents().is_empty() => {}
            Ok(_) => return Ok(()),
        }
    }
    Err(Errno::CANCELED.into())
}

/// Ignores progress and never cancels.
impl Progress for () {
    fn add(&self, _: u64, _: u64) {}
}
