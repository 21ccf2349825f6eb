//! What the process inherited, recorded before the Rust runtime starts.
//!
//! The Rust runtime ignores `SIGPIPE` and opens `/dev/null` on closed standard descriptors, and
//! this program cannot work with `SIGCHLD` ignored. A command must inherit the original state, so a
//! constructor records both dispositions and the closed descriptors before `main` runs.

use crate::signals::is_ignored;
use std::os::unix::process::CommandExt;
use std::process::Command;
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

/// Restores the inherited dispositions of `SIGPIPE` and `SIGCHLD`. Only for a process that is
/// about to call execve(2); async-signal-safe.
pub(crate) fn restore_dispositions() {
    for (signal, ignored) in [(libc::SIGPIPE, &SIGPIPE_IGNORED), (libc::SIGCHLD, &SIGCHLD_IGNORED)]
    {
        let disposition = if ignored.load(Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither disposition is a pointer to code.
        unsafe { libc::signal(signal, disposition) };
    }
}

/// Gives `command` the dispositions of `SIGPIPE` and `SIGCHLD` that this process inherited.
pub fn pass_on_dispositions(command: &mut Command) {
    let restore = || {
        restore_dispositions();
        Ok(())
    };
    // SAFETY: the closure is async-signal-safe.
    unsafe { command.pre_exec(restore) };
}

/// Sets the default disposition of `SIGCHLD`. If this process inherited an ignored `SIGCHLD`, the
/// kernel would reap its children without a wait (wait(2)). [`pass_on_dispositions`] gives commands
/// the inherited disposition.
pub fn learn_of_children() {
    // SAFETY: the default disposition is no pointer to code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Whether standard descriptor `fd` (0, 1 or 2) was closed when the process started.
pub fn was_closed(fd: i32) -> bool {
    (0..3).contains(&fd) && CLOSED.load(Relaxed) & (1 << fd) != 0
}

/// Makes each standard descriptor on which the runtime opened `/dev/null` close-on-exec, so that
/// the descriptor is closed again in a command.
pub fn forget_runtime_stdio() {
    for fd in (0..3).filter(|fd| was_closed(*fd)) {
        // SAFETY: F_SETFD changes one flag of a descriptor that the runtime opened.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
