//! The progress of long verbs: entries and bytes, on a terminal only; and cancellation by
//! Ctrl-C.

use crate::text::is_quiet;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;
use synconce_fs::Progress;

/// The signal that has cancelled the verb; 0 if none has.
static CANCELLED_BY: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The first socket is readable once a signal has cancelled the verb. The second stays open: without
/// a writer the first would be readable at once.
static CANCELLATION: OnceLock<(UnixStream, UnixStream)> = OnceLock::new();

/// Returns the signal that has cancelled the verb.
pub fn cancelled_by() -> Option<i32> {
    let signal = CANCELLED_BY.load(Ordering::Relaxed);
    (signal != 0).then_some(signal as i32)
}

/// Handles the signals that cancel a verb, unless they are handled already.
fn handle_signals() -> io::Result<()> {
    if CANCELLATION.get().is_some() {
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

/// The progress of a long verb.
pub struct Bar {
    bar: ProgressBar,
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl Bar {
    /// Makes a bar that shows how many entries are `done`, once a second has passed. From now
    /// on SIGINT, SIGTERM and SIGHUP cancel the work, and the verb cleans up before it ends by the
    /// signal.
    pub fn new(done: &str) -> Self {
        let bar = Self::silent_to_signals(done);
        // If the registration fails, the signal ends the process, and the next command cleans up.
        let _ = handle_signals();
        bar
    }

    /// Like [`Self::new`], without signal handlers: for a process that soon passes its signals
    /// on to a command.
    pub fn silent_to_signals(done: &str) -> Self {
        let template = "synconce: {pos} entries {prefix}, {msg} [{elapsed}]";
        let style = ProgressStyle::with_template(template);
        let target = if is_quiet() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(5)
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self {
            // `set_prefix` would draw the bar at once.
            bar: bar.with_prefix(done.to_owned()),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}

impl Progress for Bar {
    fn add(&self, entries: u64, bytes: u64) {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let entries = self.entries.fetch_add(entries, Ordering::Relaxed) + entries;
        // Short work shows no bar.
        if self.bar.elapsed() > Duration::from_secs(1) {
            self.bar.set_message(crate::text::bytes(bytes));
            self.bar.set_position(entries);
        }
    }

    fn cancelled(&self) -> bool {
        cancelled_by().is_some()
    }

    fn cancellation(&self) -> Option<BorrowedFd<'_>> {
        CANCELLATION.get().map(|(readable, _)| readable.as_fd())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
