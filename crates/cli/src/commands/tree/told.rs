//! Signals that are for a command that we wait for.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use synconce_sys::signals::is_ignored;

/// Those that a terminal sends to the whole job, and so to the command as well.
const OF_THE_JOB: [i32; 2] = [SIGINT, SIGQUIT];
/// Those that are passed on.
const PASSED_ON: [(i32, Signal); 2] = [(SIGTERM, Signal::TERM), (SIGHUP, Signal::HUP)];
/// A signal that comes between a look and the wait is seen this much later.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Which of them came.
pub struct Told(Vec<(Arc<AtomicBool>, Signal)>);

impl Told {
    /// From now on no such signal ends us.
    pub fn new() -> io::Result<Self> {
        let mut told = Self(Vec::new());
        for signal in OF_THE_JOB.into_iter().filter(|signal| !is_ignored(*signal)) {
            signal_hook::flag::register(signal, Arc::default())?;
        }
        for (number, signal) in PASSED_ON.into_iter().filter(|(number, _)| !is_ignored(*number)) {
            let came = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(number, Arc::clone(&came))?;
            told.0.push((came, signal));
        }
        Ok(told)
    }

    /// Passes them on to `child` until it has ended.
    pub fn pass_on_to(&self, child: &Child) -> io::Result<()> {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        loop {
            for (_, signal) in self.0.iter().filter(|(came, _)| came.swap(false, Ordering::Relaxed))
            {
                // It may have ended just now.
                let _ = pidfd_send_signal(&pidfd, *signal);
            }
            match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&PAUSE)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                other => return other.map(drop).map_err(Into::into),
            }
        }
    }
}
