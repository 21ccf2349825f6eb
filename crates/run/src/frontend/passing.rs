//! Signals that are passed on to the command.

use crate::process::job;
use rustix::process::Signal;
use std::time::{Duration, Instant};
use synconce_sys::signals::{self, Received};

/// An equal signal that is read within this time after the noted one belongs to the same request.
/// timeout(1) sends both within microseconds, but a busy machine delays the reads.
const TWICE: Duration = Duration::from_secs(1);

/// The last signal that was read before the command had ended, and when.
#[derive(Debug, Default)]
pub(super) struct LastSignal(Option<(Received, Instant)>);

impl LastSignal {
    pub(super) fn note(&mut self, received: Received) {
        self.0 = Some((received, Instant::now()));
    }

    /// Whether a signal that has just been read is the noted one, sent twice: timeout(1) signals
    /// the process, and then its group. Such a signal does not mean that the user stops waiting.
    ///
    /// Only the user id distinguishes senders outside of the pid namespace, so two senders of one
    /// user count as one. That is the safe error: the user can send the signal again, but the end
    /// of a container's first process would also end the commit.
    pub(super) fn is_same(&self, received: &Received) -> bool {
        let is_noted =
            |(last, read): &(Received, Instant)| last == received && read.elapsed() < TWICE;
        received.by_process && self.0.as_ref().is_some_and(is_noted)
    }
}

/// Whether `signal` is one by which a terminal stops a job.
pub(super) fn is_stop(signal: i32) -> bool {
    [Signal::TSTP, Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal)
}

/// Passes on a signal that reached this process alone. A signal of the terminal (Ctrl-C,
/// Ctrl-Z) reached the command as well; a hang-up did not if this process leads the session.
///
/// A signal that a process sends to the whole group (`kill(0)`, as timeout(1) does) also
/// reached the command, but nothing in `siginfo_t` distinguishes it. The command gets such a
/// signal twice, which is better than never.
pub(crate) fn pass(received: &Received, command: u32) {
    if !received.is_for(command) || received.by_process && received.sender == command {
        return;
    }
    if received.signal == Signal::CONT.as_raw() {
        job::pass_continuation(command);
    } else {
        signals::send(command, received.signal);
    }
}
