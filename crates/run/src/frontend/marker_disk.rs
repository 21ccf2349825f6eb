//! The wait for the disk of a marker: its notices, and what Ctrl-C does during the wait.
//!
//! While a file system is frozen (`fsfreeze`, or the snapshot of a backup), each write there waits
//! for the thaw in the kernel, where no signal ends the wait. No system call that changes nothing
//! tells whether a file system is frozen.

use super::Frontend;
use crate::report::finished::Finished;
use crate::report::protocol::{Ending, Notice};
use crate::report::run_error::{FailedAct, RunError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::Signal;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use synconce_durable::marker::RUNS;
use synconce_durable::standard_paths;
use synconce_sys::handover::MarkerStep;
use synconce_sys::signals;

/// The time after which a wait is worth a notice.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the frontend has waited for the supervisor, and whether it has printed the notice.
pub(super) struct MarkerWait {
    since: Instant,
    is_told: bool,
}

impl MarkerWait {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), is_told: false }
    }
}

impl Frontend<'_> {
    /// Returns how long to wait for a message until [`Frontend::tell_of_marker_disk`] is due.
    /// Returns `None` while the command runs, and once the notice was printed.
    pub(super) fn patience(&self) -> Option<Timespec> {
        let is_due = self.command.is_none() && !self.marker_wait.is_told && !self.supervisor_ended;
        let left = is_due.then(|| PATIENCE.saturating_sub(self.marker_wait.since.elapsed()))?;
        Timespec::try_from(left).ok()
    }

    /// Prints a notice if the supervisor waits for the disk of a marker. Returns the end of the run
    /// if a signal had asked for it before.
    pub(super) fn tell_of_marker_disk(&mut self) -> Option<Finished> {
        let is_at = |step| self.takeover.handover.is_at(step);
        let has_ended = is_at(MarkerStep::Clears);
        if !has_ended && !is_at(MarkerStep::Arms) {
            self.marker_wait = MarkerWait::new();
            return None;
        }
        self.marker_wait.is_told = true;
        self.observer.progress_ends();
        let places = self.marker_places();
        self.observer.notice(&Notice::MarkerDiskWaits { places, has_ended });
        self.gives_up_start().then(|| self.end_of_wait())
    }

    /// Whether a notice has named the disk, a signal has asked for the end, and the command has not
    /// started. In that case it will not start.
    pub(super) fn gives_up_start(&self) -> bool {
        self.marker_wait.is_told
            && self.early.iter().any(|(received, _)| ends_wait(received.signal))
            && self.takeover.handover.change_marker_step(MarkerStep::Arms, MarkerStep::GivenUp)
    }

    /// Returns the end of a run for which the user does not wait.
    pub(super) fn end_of_wait(&mut self) -> Finished {
        self.observer.progress_ends();
        let interrupted = |act: &str, path: Option<PathBuf>| FailedAct {
            act: act.to_owned(),
            path: path.unwrap_or_default(),
            errno: Errno::INTR.raw_os_error(),
        };
        let place = self.marker_places().into_iter().next();
        if self.takeover.handover.is_at(MarkerStep::GivenUp) {
            // The kernel ends the supervisor before its wait returns.
            signals::send(self.supervisor, Signal::KILL.as_raw());
            self.keep_early();
            let act = interrupted("cannot write a marker in", place);
            return Finished::failed(RunError::MarkerUnwritable(act));
        }
        if self.takeover.handover.is_at(MarkerStep::Clears) {
            let act = interrupted("cannot remove a marker in", place);
            return self.broken_off(RunError::Clear(act));
        }
        let unfinished = std::mem::take(&mut self.waiting);
        Finished { unfinished, ..self.broken_off(RunError::Commit) }
    }

    /// Polls until the supervisor has exited or, if it `stays` for survivors, has closed the
    /// markers; at most for [`PATIENCE`], and until a signal arrives. Returns whether it has.
    /// On a frozen file system, its close of a marker that is not durable may wait for the thaw.
    pub(super) fn supervisor_lets_go(&self, stays: bool) -> bool {
        let (end, flags) = match &self.supervisor_end {
            // The supervisor shuts it down.
            _ if stays => (self.socket.as_fd(), PollFlags::empty()),
            Some(end) => (end.as_fd(), PollFlags::IN),
            None => return true,
        };
        let mut fds =
            [PollFd::from_borrowed_fd(end, flags), PollFd::new(&self.signals, PollFlags::IN)];
        let patience = Timespec::try_from(PATIENCE).ok();
        let _ = retry_on_intr(|| rustix::event::poll(&mut fds, patience.as_ref()));
        !fds[0].revents().is_empty()
    }

    /// Returns the directories of the markers.
    fn marker_places(&self) -> Vec<PathBuf> {
        let root = self.options.root.as_ref();
        let below_root = root.map(|root| root.join(standard_paths::STATE_BELOW_ROOT));
        let states = standard_paths::state().into_iter().chain(below_root);
        states.map(|state| state.join(RUNS)).collect()
    }

    /// Starts a new wait: the command has ended.
    pub(super) fn command_ended(&mut self, end: Ending) {
        self.command = None;
        self.ending = end;
        self.marker_wait = MarkerWait::new();
    }
}

/// Whether `signal` means to stop waiting for the commit. Others may have been meant for the
/// command, or the caller made this process ignore them (nohup).
pub(super) fn ends_wait(signal: i32) -> bool {
    use Signal as S;
    let ends = [S::HUP, S::INT, S::QUIT, S::ABORT, S::ALARM, S::TERM].map(S::as_raw);
    ends.contains(&signal) && !signals::is_ignored(signal)
}
