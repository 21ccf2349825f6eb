//! A bar of entries and bytes, on a terminal only; and Ctrl-C.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use synconce_tree::Progress;

/// How far a long verb is.
pub struct Bar {
    bar: ProgressBar,
    entries: AtomicU64,
    bytes: AtomicU64,
    cancelled: Arc<AtomicBool>,
}

impl Bar {
    /// A bar that says that entries are `done`, once it takes a second. From now on
    /// Ctrl-C and its like end the work in good order.
    pub fn new(done: &str) -> Self {
        let bar = Self::silent_to_signals(done);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if !synconce_sys::signals::is_ignored(signal) {
                // Without it they end the process, and the next one clears up.
                let _ = signal_hook::flag::register(signal, Arc::clone(&bar.cancelled));
            }
        }
        bar
    }

    /// The same, for a process whose signals are a command's before long.
    pub fn silent_to_signals(done: &str) -> Self {
        let template = "synconce: {pos} entries {prefix}, {msg} [{elapsed}]";
        let style = ProgressStyle::with_template(template);
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_prefix(done.to_owned());
        Self {
            bar,
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            cancelled: Arc::default(),
        }
    }
}

impl Progress for Bar {
    fn add(&self, entries: u64, bytes: u64) {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let entries = self.entries.fetch_add(entries, Ordering::Relaxed) + entries;
        // What takes no time to do takes none to look at either.
        if self.bar.elapsed() > Duration::from_secs(1) {
            self.bar.set_message(crate::text::bytes(bytes));
            self.bar.set_position(entries);
        }
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
