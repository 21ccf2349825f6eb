//! Forwards signals to a command that synconce waits for.
//!
//! The signals are handled, not blocked and read by signalfd(2): the command would inherit the
//! blocked mask.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use signal_hook::consts::{SIGINT, SIGQUIT};
use std::io;
use std::ops::RangeInclusive;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use synconce_sys::signals::{is_ignored, send};

/// Signals that a terminal sends to the whole job, and so to the command as well.
const OF_THE_JOB: [i32; 2] = [SIGINT, SIGQUIT];
/// Signals that a process may send to another and that would end synconce: these and
/// [`REAL_TIME`] are forwarded.
const PASSED_ON: [Signal; 11] = [
    Signal::TERM,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::POWER,
    Signal::STKFLT,
    Signal::XCPU,
];
/// The real-time signals that the C library leaves to programs (signal(7)).
const REAL_TIME: RangeInclusive<i32> = 35..=64;
/// The longest delay of a signal that arrives between the check of the flags and the poll(2).
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// For each forwarded signal, whether the signal has arrived.
pub struct SignalForwarder(Vec<(Arc<AtomicBool>, i32)>);

impl SignalForwarder {
    /// Installs the handlers: from now on these signals do not end synconce.
    pub fn new() -> io::Result<Self> {
        let mut forwarder = Self(Vec::new());
        for signal in OF_THE_JOB.into_iter().filter(|signal| !is_ignored(*signal)) {
            signal_hook::flag::register(signal, Arc::default())?;
        }
        let passed_on = PASSED_ON.map(Signal::as_raw).into_iter().chain(REAL_TIME);
        for signal in passed_on.filter(|signal| !is_ignored(*signal)) {
            let came = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&came))?;
            forwarder.0.push((came, signal));
        }
        Ok(forwarder)
    }

    /// Forwards the signals to `child` until `child` has ended.
    pub fn pass_on_to(&self, child: &Child) -> io::Result<()> {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        loop {
            for (_, signal) in self.0.iter().filter(|(came, _)| came.swap(false, Ordering::Relaxed))
            {
                // `child` may have ended just now. Its id is not used again before the wait.
                send(child.id(), *signal);
            }
            match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&PAUSE)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                other => return other.map(drop).map_err(Into::into),
            }
        }
    }
}
