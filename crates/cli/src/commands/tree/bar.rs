//! The progress of long verbs: entries and bytes, on a terminal only.

use crate::cancellation::{Cancellation, handle_signals};
use crate::text::is_quiet;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use synconce_fs::Progress;

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
        Cancellation.cancelled()
    }

    fn cancellation(&self) -> Option<BorrowedFd<'_>> {
        Cancellation.cancellation()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
