//! What the process inherited, recorded before the Rust runtime starts.
//!
//! The runtime ignores `SIGPIPE` and opens `/dev/null` on closed standard
//! descriptors. A command started by us must get what *we* got, so both are
//! noted by a constructor that runs before `main`.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicU8 = AtomicU8::new(0);

extern "C" fn record() {
    for fd in 0..3 {
        // SAFETY: F_GETFD only reads the descriptor table.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Relaxed);
        }
    }
    let mut old = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads the old one, into memory we own.
    let read = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), old.as_mut_ptr()) };
    // SAFETY: zeroed is a valid sigaction, and the call filled it when it returned 0.
    if read == 0 && unsafe { old.assume_init() }.sa_sigaction == libc::SIG_IGN {
        SIGPIPE_IGNORED.store(true, Relaxed);
    }
}

// SAFETY: the C runtime calls every entry of .init_array once, before main, on
// the only thread; `record` uses nothing that needs the Rust runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

/// Whether `SIGPIPE` was ignored when the process was started.
pub fn sigpipe_was_ignored() -> bool {
    SIGPIPE_IGNORED.load(Relaxed)
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
