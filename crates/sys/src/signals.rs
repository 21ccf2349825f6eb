//! Signal masks, descriptors that read signals, and stopping or dying by a signal.

use crate::check;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Signals that a terminal sends to every process of its job.
const OF_A_TERMINAL: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU, libc::SIGWINCH];

/// Signals that the kernel sends to the leader of a session whose terminal is closed, and to no
/// other process. The foreground job gets SIGHUP when the leader has ended.
const OF_A_HANG_UP: [i32; 2] = [libc::SIGHUP, libc::SIGCONT];

/// Returns the signals that a process passes on to the command that it waits for. Left out are
/// SIGCHLD, the signals that cannot be blocked, and those with which the kernel reports a fault of
/// the process itself. The C library keeps the first two real-time signals (signal(7)).
pub fn passed_on() -> Vec<i32> {
    const KEPT: [i32; 9] = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGCHLD,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSEGV,
        libc::SIGSYS,
    ];
    (1..32).chain(34..=64).filter(|signal| !KEPT.contains(signal)).collect()
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(pub(crate) libc::sigset_t);

impl SignalSet {
    /// Returns the set of exactly `signals`.
    pub fn from_numbers(signals: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set before it is read.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in signals {
            // SAFETY: the set is initialised; a bad number is refused with EINVAL.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
        Self(set)
    }

    /// Adds the set to the calling thread's mask and returns the old mask.
    pub fn block(&self) -> Self {
        self.apply(libc::SIG_BLOCK)
    }

    /// Makes the set the calling thread's mask and returns the old mask.
    pub fn set(&self) -> Self {
        self.apply(libc::SIG_SETMASK)
    }

    fn apply(&self, how: libc::c_int) -> Self {
        let mut old = Self::from_numbers(&[]);
        // SAFETY: both sets are initialised.
        unsafe { libc::pthread_sigmask(how, &raw const self.0, &raw mut old.0) };
        old
    }
}

/// A received signal. Signals that a process sends twice in the same way are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The signal's number.
    pub signal: i32,
    /// Whether a process sent the signal (`kill`, `sigqueue`). The kernel sends a terminal's
    /// Ctrl-C.
    pub by_process: bool,
    /// The sender, if a process sent the signal. A sender outside of this process's pid namespace
    /// is 0.
    pub sender: u32,
    /// The user of the sender, if a process sent the signal.
    pub user: u32,
}

impl Received {
    /// Whether the signal was sent to this process alone. A terminal sends a signal to the whole
    /// job, but a hang-up to the leader of the session. A timer (alarm(2)) belongs to one process,
    /// and stays with it over execve(2). A write to a closed pipe sends SIGPIPE to its own process.
    pub fn is_to_this_process(&self) -> bool {
        if self.by_process {
            self.sender != std::process::id()
        } else if self.is_hang_up() {
            leads_session()
        } else {
            !OF_A_TERMINAL.contains(&self.signal)
        }
    }

    /// Whether the signal reached this process alone, and is for `command` as well, a child. The
    /// hang-up of a terminal is not for a command in another session, such as one that setsid(1)
    /// started.
    pub fn is_for(&self, command: u32) -> bool {
        let is_in_session = || session_of(command) == session_of(0);
        self.is_to_this_process() && (!self.is_hang_up() || is_in_session())
    }

    /// Whether the kernel sent the signal because the terminal was closed.
    pub fn is_hang_up(&self) -> bool {
        !self.by_process && OF_A_HANG_UP.contains(&self.signal)
    }
}

/// Whether this process is the leader of its session, to which the kernel sends the hang-up of the
/// session's terminal.
pub fn leads_session() -> bool {
    session_of(0) == Some(std::process::id().cast_signed())
}

/// Returns the session of `pid`, or of this process for 0. Returns `None` if the process
/// has ended, or if the session began outside this pid namespace: getsid(2) returns 0 for it.
pub fn session_of(pid: u32) -> Option<libc::pid_t> {
    // SAFETY: takes no pointers.
    let session = unsafe { libc::getsid(pid.cast_signed()) };
    (session > 0).then_some(session)
}

/// A descriptor from which blocked signals are read (`signalfd(2)`).
#[derive(Debug)]
pub struct SignalReader(OwnedFd);

impl AsFd for SignalReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl SignalReader {
    /// Returns a reader of `set`, non-blocking and close-on-exec. Block the set first.
    ///
    /// # Errors
    /// Those of `signalfd(2)`.
    pub fn new(set: &SignalSet) -> io::Result<Self> {
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        // SAFETY: the set is initialised.
        let fd = check(libc::c_long::from(unsafe { libc::signalfd(-1, &raw const set.0, flags) }))?;
        // SAFETY: a new descriptor that has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Returns the next signal, or `None` if no signal is pending.
    pub fn next(&self) -> Option<Received> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the kernel writes at most `size` bytes into `info`.
        let read = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if read != size as isize {
            return None;
        }
        // SAFETY: the kernel filled the whole structure.
        let info = unsafe { info.assume_init() };
        Some(Received {
            signal: info.ssi_signo as i32,
            by_process: info.ssi_code <= 0,
            sender: info.ssi_pid,
            user: info.ssi_uid,
        })
    }
}

/// Ends the calling process by `signal` with its default action, without dumping core. Returns
/// only if the signal does not kill.
pub fn die_by(signal: i32) {
    // SAFETY: takes no pointers. A process that is not dumpable does not overwrite the
    // command's core file; a core limit of 0 would not prevent a dump into a pipe (core(5)).
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
    }
    raise_unblocked(signal);
}

/// Gives every signal its default action.
pub fn reset() {
    for signal in 1..=64 {
        // SAFETY: takes no pointers. Those that cannot be changed are refused with EINVAL.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Whether the calling process ignores `signal`. Async-signal-safe.
pub fn is_ignored(signal: i32) -> bool {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads the old action, into `old`.
    let read = unsafe { libc::sigaction(signal, std::ptr::null(), old.as_mut_ptr()) };
    // SAFETY: zeroed is a valid sigaction, and the call filled it when it returned 0.
    read == 0 && unsafe { old.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Stops the calling process by `signal`, as the terminal would. Returns when the process is
/// continued, with its mask unchanged.
pub fn stop_by(signal: i32) {
    // SAFETY: signal(2) with SIG_DFL takes no pointer.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let old = raise_unblocked(signal);
    old.set();
}

fn raise_unblocked(signal: i32) -> SignalSet {
    // SAFETY: sends a signal to this process.
    unsafe { libc::raise(signal) };
    let mut old = SignalSet::from_numbers(&[]);
    let set = SignalSet::from_numbers(&[signal]);
    // SAFETY: both sets are initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set.0, &raw mut old.0) };
    old
}

/// Sends SIGALRM to the calling process after a time (setitimer(2)), in place of an earlier
/// request. [`Received::by_process`] is false for this signal.
pub fn alarm_after(after: Duration) {
    let seconds = libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX);
    // Zero would end the request.
    let micros = libc::suseconds_t::from(after.subsec_micros().max(1).cast_signed());
    let never = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let once = libc::timeval { tv_sec: seconds, tv_usec: micros };
    let timer = libc::itimerval { it_interval: never, it_value: once };
    // SAFETY: the timer is initialised; the old one is not asked for.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

/// Sends `signal` to the process `pid`. Returns whether the signal was sent.
pub fn send(pid: u32, signal: i32) -> bool {
    // SAFETY: takes no pointers.
    pid != 0 && unsafe { libc::kill(pid as i32, signal) } == 0
}
