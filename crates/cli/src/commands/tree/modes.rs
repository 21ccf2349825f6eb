//! The modes of the caller's terminal, which the process inside changes.

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use synconce_sys::process;

/// The terminal and its modes before the command, if standard input and output are a terminal.
pub(super) struct Modes(Option<(OwnedFd, Termios)>);

impl Modes {
    pub(super) fn of_terminal() -> Self {
        let has_terminal = isatty(io::stdin()) && isatty(io::stdout());
        // A copy, because a run gives up what it inherited when the command has started.
        let terminal = has_terminal.then(|| io::stdin().as_fd().try_clone_to_owned().ok());
        let with_modes = |terminal: OwnedFd| {
            let modes = tcgetattr(&terminal).ok()?;
            Some((terminal, modes))
        };
        Self(terminal.flatten().and_then(with_modes))
    }

    /// Restores the modes after a process inside was killed, which could not do so itself.
    pub(super) fn restore(&self) {
        let Some((terminal, modes)) = &self.0 else { return };
        if process::is_in_foreground(terminal) {
            // A terminal that was hung up has no modes.
            let _ = tcsetattr(terminal, OptionalActions::Now, modes);
        }
    }
}
