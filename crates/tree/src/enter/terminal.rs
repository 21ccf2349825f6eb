//! A pseudo-terminal for the command, if the caller has a terminal. The process outside copies
//! bytes between the two.
//!
//! The caller's terminal is in raw mode while its foreground job is this one: each key, Ctrl-C
//! too, goes to the pseudo-terminal, which sends the signals of its keys to the processes inside.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Signal, kill_current_process_group};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetpgrp,
    tcgetwinsize, tcsetattr, tcsetwinsize,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_durable::error::{Context, Error};
use synconce_sys::process;
use synconce_sys::signals::{Received, SignalReader};

/// The most bytes that are read at once, and that wait for a writer.
const ROOM: usize = 4096;
/// More bytes than a pseudo-terminal buffers. A read of this many has all that a process wrote
/// before its end.
const MOST_HELD: usize = 1 << 17;
/// The interval at which a background job checks whether it is in the foreground. No signal reports
/// the change.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// How long a run that a signal ends waits for a terminal that takes no output.
const PATIENCE: Duration = Duration::from_secs(1);

/// A new instance of devpts and, in it, the command's terminal.
pub(super) struct Devpts {
    /// The mount, not attached yet.
    pub(super) mount: OwnedFd,
    /// The end of the pseudo-terminal for the process outside.
    master: Option<OwnedFd>,
}

impl Devpts {
    /// Makes a terminal in the instance `mount` if standard input and output are a terminal.
    pub(super) fn new(mount: OwnedFd) -> Result<Self, Error> {
        let master = has_terminal().then(|| {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let master = openat(&mount, "ptmx", flags, Mode::empty())?;
            unlockpt(&master).map(|()| master)
        });
        let master = master.transpose().on("cannot make a terminal in", Path::new("/dev/pts"))?;
        Ok(Self { mount, master })
    }

    pub(super) fn has_terminal(&self) -> bool {
        self.master.is_some()
    }

    /// Returns the side of the process outside.
    pub(super) fn outside(self) -> io::Result<Option<Terminal>> {
        self.master.map(Terminal::new).transpose()
    }

    /// Makes this process the leader of a session on the terminal. The terminal replaces those
    /// standard streams that are a terminal.
    pub(super) fn take(self) -> io::Result<()> {
        let Some(master) = self.master else { return Ok(()) };
        let errors = isatty(io::stderr());
        rustix::process::setsid()?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        rustix::process::ioctl_tiocsctty(&slave)?;
        dup2_stdin(&slave)?;
        dup2_stdout(&slave)?;
        if errors {
            dup2_stderr(&slave)?;
        }
        Ok(())
    }
}

/// Whether standard input and output are a terminal.
fn has_terminal() -> bool {
    isatty(io::stdin()) && isatty(io::stdout())
}

/// The caller's terminal and the command's.
pub(super) struct Terminal {
    /// `None` after the caller's terminal was hung up: the kernel then hangs up the command's
    /// terminal.
    master: Option<OwnedFd>,
    input: OwnedFd,
    output: OwnedFd,
    /// The modes of the caller's terminal before.
    before: Termios,
    is_raw: bool,
    /// The time after which no more output is shown; set by a signal that ends the run.
    end: Option<Instant>,
    /// Bytes for the command.
    typed: Vec<u8>,
    /// Bytes for the caller's terminal.
    shown: Vec<u8>,
    /// Whether the keys of SIGINT and SIGQUIT were typed.
    typed_signals: [bool; 2],
}

impl Terminal {
    fn new(master: OwnedFd) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        // tcsetattr(3) and TIOCSWINSZ on the master change the command's terminal.
        tcsetattr(&master, OptionalActions::Now, &before)?;
        let input = own_description(io::stdin().as_fd(), OFlags::RDONLY)?;
        let output = own_description(io::stdout().as_fd(), OFlags::WRONLY)?;
        let terminal = Self {
            master: Some(master),
            input,
            output,
            before,
            is_raw: false,
            end: None,
            typed: Vec::new(),
            shown: Vec::new(),
            typed_signals: [false; 2],
        };
        terminal.resize();
        Ok(terminal)
    }

    /// Gives the command's terminal the size of the caller's.
    pub(super) fn resize(&self) {
        // Without a size, the terminal keeps its size.
        let Some(master) = &self.master else { return };
        let _ = tcgetwinsize(&self.input).and_then(|size| tcsetwinsize(master, size));
    }

    fn is_in_the_foreground(&self) -> bool {
        process::is_in_foreground(&self.input)
    }

    /// Waits until one of `others` is readable or bytes were copied. Returns which of `others`
    /// are readable.
    pub(super) fn wait<const N: usize>(
        &mut self,
        others: [BorrowedFd<'_>; N],
        at_once: bool,
    ) -> io::Result<[bool; N]> {
        let is_ours = self.master.is_some() && self.is_in_the_foreground();
        if is_ours && !self.is_raw {
            self.make_raw()?;
        }
        self.is_raw &= is_ours;
        let wanted = |is_wanted: bool, flag| if is_wanted { flag } else { PollFlags::empty() };
        let is_waiting = is_ours && self.typed.is_empty();
        let of_master = wanted(self.shown.is_empty(), PollFlags::IN)
            | wanted(!self.typed.is_empty(), PollFlags::OUT);
        let mut fds = Vec::from(others.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        if let Some(master) = &self.master {
            // poll(2) reports a hang-up whatever events are requested.
            fds.push(PollFd::new(&self.input, wanted(is_waiting, PollFlags::IN)));
            fds.push(PollFd::new(master, of_master));
            if !self.shown.is_empty() {
                fds.push(PollFd::new(&self.output, PollFlags::OUT));
            }
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_looking = self.master.is_some() && !is_ours;
        let limit = if at_once { Some(&now) } else { is_looking.then_some(&LOOK) };
        rustix::io::retry_on_intr(|| poll(&mut fds, limit))?;
        let readable = std::array::from_fn(|at| !fds[at].revents().is_empty());
        let of_input = fds.get(N).map_or(PollFlags::empty(), PollFd::revents);
        drop(fds);
        if of_input.contains(PollFlags::HUP) {
            self.hang_up();
        } else if is_waiting && !of_input.is_empty() {
            self.read_typed();
        }
        self.copy();
        Ok(readable)
    }

    /// Hangs up the command's terminal, because the caller's was hung up.
    fn hang_up(&mut self) {
        self.master = None;
        self.typed.clear();
        self.shown.clear();
    }

    fn make_raw(&mut self) -> io::Result<()> {
        self.before = tcgetattr(&self.input)?;
        let mut raw = self.before.clone();
        raw.make_raw();
        tcsetattr(&self.input, OptionalActions::Now, &raw)?;
        self.is_raw = true;
        self.resize();
        Ok(())
    }

    /// Shows what the command has written, and then restores the modes of the caller's terminal.
    pub(super) fn restore(
        &mut self,
        signals: &SignalReader,
        pass_on: impl FnMut(&mut Self, Received),
    ) {
        self.show_the_rest(signals, pass_on);
        if self.is_raw && self.is_in_the_foreground() {
            // A terminal that was hung up has no modes.
            let _ = tcsetattr(&self.input, OptionalActions::Now, &self.before);
        }
        self.is_raw = false;
    }

    fn read_typed(&mut self) {
        let mut bytes = [0; ROOM];
        match rustix::io::read(&self.input, &mut bytes) {
            Ok(count) if count > 0 => {
                self.typed.extend(&bytes[..count]);
                self.look_for_signals();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A job that has just left the foreground gets EIO, too, because SIGTTIN is blocked.
            _ if tcgetpgrp(&self.input).is_ok() => {}
            _ => self.hang_up(),
        }
    }

    fn look_for_signals(&mut self) {
        let Some(Ok(modes)) = self.master.as_ref().map(tcgetattr) else { return };
        if !modes.local_modes.contains(LocalModes::ISIG) {
            return;
        }
        let keys = [SpecialCodeIndex::VINTR, SpecialCodeIndex::VQUIT];
        for (key, typed) in keys.into_iter().zip(&mut self.typed_signals) {
            *typed |= self.typed.contains(&modes.special_codes[key]);
        }
    }

    /// Copies what can be copied without waiting.
    fn copy(&mut self) {
        let Some(master) = &self.master else { return };
        match rustix::io::write(master, &self.typed) {
            Ok(count) => drop(self.typed.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // No process has the terminal open.
            Err(_) => self.typed.clear(),
        }
        if self.shown.is_empty() {
            let mut bytes = [0; ROOM];
            let count = rustix::io::read(master, &mut bytes).unwrap_or(0);
            self.shown.extend(&bytes[..count]);
        }
        match rustix::io::write(&self.output, &self.shown) {
            Ok(count) => drop(self.shown.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.shown.clear(),
        }
    }

    /// Notes that a signal ends the run: a terminal that takes no output is not waited for.
    pub(super) fn end_soon(&mut self) {
        self.end = Some(Instant::now() + PATIENCE);
    }

    /// Shows what the command has written before this call. Processes that still write are not
    /// waited for. `pass_on` gets the signals that arrive meanwhile.
    pub(super) fn show_the_rest(
        &mut self,
        signals: &SignalReader,
        mut pass_on: impl FnMut(&mut Self, Received),
    ) {
        let Some(master) = &self.master else { return };
        let mut bytes = vec![0; MOST_HELD];
        let mut held = 0;
        while held < MOST_HELD {
            match rustix::io::read(master, &mut bytes[held..]) {
                Ok(count) if count > 0 => held += count,
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
        self.shown.extend(&bytes[..held]);
        if let Some(end) = &mut self.end {
            // The command may have worked on since the signal.
            *end = Instant::now() + PATIENCE;
        }
        while !self.shown.is_empty() {
            match rustix::io::write(&self.output, &self.shown) {
                Ok(count) => drop(self.shown.drain(..count)),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.hang_up(),
            }
            let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
            if self.shown.is_empty() || left == Some(Duration::ZERO) {
                break;
            }
            let limit = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [
                PollFd::new(&self.output, PollFlags::OUT),
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            ];
            let _ = rustix::io::retry_on_intr(|| poll(&mut fds, limit.as_ref()));
            while let Some(received) = signals.next() {
                pass_on(self, received);
            }
        }
        self.shown.clear();
    }

    /// Sends the job of the caller the signal that ended the command, if the signal's key was
    /// typed: without a pseudo-terminal the kernel signals the whole job, so that a shell script
    /// ends, too.
    pub(super) fn signal_the_job(&self, signal: i32) {
        for (key, is_typed) in [Signal::INT, Signal::QUIT].into_iter().zip(self.typed_signals) {
            if is_typed && key.as_raw() == signal {
                let _ = kill_current_process_group(key);
            }
        }
    }
}

/// Opens the terminal `stream` anew, without blocking: the flag of the caller's own description
/// is shared with other processes. If that is not permitted, returns a copy of `stream`.
fn own_description(stream: BorrowedFd<'_>, mode: OFlags) -> io::Result<OwnedFd> {
    let flags = mode | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
    match openat(CWD, path, flags, Mode::empty()) {
        Ok(own) => Ok(own),
        Err(_) => stream.try_clone_to_owned(),
    }
}
