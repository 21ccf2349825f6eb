//! Cancellation of a verb by Ctrl-C and other signals.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use synconce_fs::Progress;

/// The signal that has cancelled the verb; 0 if none has.
static CANCELLED_BY: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The first socket is readable once a signal has cancelled the verb. The second stays open:
/// without a writer the first would be readable at once.
static CANCELLATION: OnceLock<(UnixStream, UnixStream)> = OnceLock::new();

/// Returns the signal that has cancelled the verb, if one has.
pub(crate) fn cancelled_by() -> Option<i32> {
    let signal = CANCELLED_BY.load(Ordering::Relaxed);
    (signal != 0).then_some(signal as i32)
}

/// Whether signals cancel the verb instead of ending the process.
pub(crate) fn are_signals_handled() -> bool {
    CANCELLATION.get().is_some()
}

/// Handles the signals that cancel a verb, unless they are handled already.
pub(crate) fn handle_signals() -> io::Result<()> {
    if are_signals_handled() {
        return Ok(());
    }
    let pair = UnixStream::pair()?;
    let (_, writer) = CANCELLATION.get_or_init(|| pair);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if !synconce_sys::signals::is_ignored(signal) {
            flag::register_usize(signal, Arc::clone(&CANCELLED_BY), signal as usize)?;
            low_level::pipe::register(signal, writer.try_clone()?)?;
        }
    }
    Ok(())
}

/// The cancellation of the verb by a signal, for work that shows no progress.
pub(crate) struct Cancellation;

impl Progress for Cancellation {
    fn add(&self, _: u64, _: u64) {}

    fn cancelled(&self) -> bool {
        cancelled_by().is_some()
    }

    fn cancellation(&self) -> Option<BorrowedFd<'_>> {
        CANCELLATION.get().map(|(readable, _)| readable.as_fd())
    }
}
