//! Forwards signals to a command that synconce waits for.
//!
//! Until the command is started, the signals are handled and not blocked: the command would
//! inherit the blocked mask.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use synconce_sys::signals::{self, SignalReader, SignalSet, is_ignored};

/// Signals that stop and continue synconce itself.
const JOB_CONTROL: [Signal; 4] = [Signal::TSTP, Signal::TTIN, Signal::TTOU, Signal::CONT];

/// Handlers of the forwarded signals.
pub struct SignalForwarder {
    /// For each signal, whether the signal has arrived before the command was started.
    signals: Vec<(Arc<AtomicBool>, i32)>,
    /// Whether the signals still act as if they were not handled.
    is_late: Arc<AtomicBool>,
}

impl SignalForwarder {
    /// Installs the handlers: from now on these signals do not end synconce.
    pub fn new() -> io::Result<Self> {
        let forwarder = Self::later()?;
        forwarder.begin();
        Ok(forwarder)
    }

    /// Installs the handlers. Until [`SignalForwarder::begin`], the signals act as without them.
    pub fn later() -> io::Result<Self> {
        let is_late = Arc::new(AtomicBool::new(true));
        let mut forwarder = Self { signals: Vec::new(), is_late: Arc::clone(&is_late) };
        let job_control = JOB_CONTROL.map(Signal::as_raw);
        let passed_on = signals::passed_on().into_iter();
        for signal in passed_on.filter(|it| !is_ignored(*it) && !job_control.contains(it)) {
            let came = Arc::new(AtomicBool::new(false));
            // The table of this crate has no real-time signals.
            if signal_hook::low_level::signal_name(signal).is_some() {
                signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_late))?;
            }
            signal_hook::flag::register(signal, Arc::clone(&came))?;
            forwarder.signals.push((came, signal));
        }
        Ok(forwarder)
    }

    /// From now on the signals do not end synconce.
    pub fn begin(&self) {
        self.is_late.store(false, Ordering::SeqCst);
    }

    /// Forwards the signals to `child` until `child` has ended. A signal of the terminal
    /// reaches the child by itself.
    pub fn pass_on_to(&self, child: &Child) -> io::Result<()> {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let set = SignalSet::from_numbers(
            &self.signals.iter().map(|(_, signal)| *signal).collect::<Vec<_>>(),
        );
        let mask = set.block();
        let passed_on = self.pass_until_readable(&pidfd, &SignalReader::new(&set)?, child.id());
        mask.set();
        passed_on
    }

    fn pass_until_readable(
        &self,
        end: &OwnedFd,
        reader: &SignalReader,
        child: u32,
    ) -> io::Result<()> {
        for (_, signal) in self.signals.iter().filter(|(came, _)| came.load(Ordering::Relaxed)) {
            signals::send(child, *signal);
        }
        loop {
            // `child` may have ended just now. Its id is not used again before the wait.
            while let Some(received) = reader.next() {
                if received.is_for(child) {
                    signals::send(child, received.signal);
                }
            }
            let mut fds = [PollFd::new(end, PollFlags::IN), PollFd::new(reader, PollFlags::IN)];
            rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
        }
    }
}
