//! What the process inherited, recorded before the Rust runtime starts.
//!
//! The runtime ignores `SIGPIPE` and opens `/dev/null` on closed standard
//! descriptors, and we cannot work with `SIGCHLD` ignored. A command started by
//! us must get what *we* got, so all three are noted by a constructor that runs
//! before `main`.

use crate::signals::is_ignored;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static SIGCHLD_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicU8 = AtomicU8::new(0);

extern "C" fn record() {
    for fd in 0..3 {
        // SAFETY: F_GETFD only reads the descriptor table.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Relaxed);
        }
    }
    SIGPIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Relaxed);
    SIGCHLD_IGNORED.store(is_ignored(libc::SIGCHLD), Relaxed);
}

// SAFETY: the C runtime calls every entry of .init_array once, before main, on
// the only thread; `record` uses nothing that needs the Rust runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

/// Gives `SIGPIPE` and `SIGCHLD` the dispositions that we inherited. Only for a
/// process that is about to execute; async-signal-safe.
pub(crate) fn restore_dispositions() {
    for (signal, ignored) in [(libc::SIGPIPE, &SIGPIPE_IGNORED), (libc::SIGCHLD, &SIGCHLD_IGNORED)]
    {
        let disposition = if ignored.load(Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither disposition is a pointer to code.
        unsafe { libc::signal(signal, disposition) };
    }
}

/// Sees to it that we learn of our children's ends: where `SIGCHLD` is ignored
/// the kernel reaps them itself (`wait(2)`).
pub fn learn_of_children() {
    // SAFETY: the default disposition is no pointer to code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Whether standard descriptor `fd` (0, 1 or 2) was closed at the start.
pub fn was_closed(fd: i32) -> bool {
    (0..3).contains(&fd) && CLOSED.load(Relaxed) & (1 << fd) != 0
}

/// Marks the `/dev/null` that the runtime put on closed standard descriptors
/// close-on-exec, so that a command finds them closed as we did.
pub fn forget_runtime_stdio() {
    for fd in (0..3).filter(|fd| was_closed(*fd)) {
        // SAFETY: changes one flag of a descriptor that the runtime opened.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
