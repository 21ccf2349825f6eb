//! The foreground process: what the user's shell sees.
//!
//! It is in the terminal's job together with the command, mirrors its stops and
//! its end, passes on signals that were sent to it alone, and shows the commit.

use crate::accounts::Accounts;
use crate::families;
use crate::finished::{Ending, Finished, Observer, Outcome};
use crate::held::{has_supervisor, outer};
use crate::job;
use crate::launching;
use crate::lifecycle;
use crate::options::Options;
use crate::orphaned;
use crate::protocol::{CommitReport, Message, Summary, receive};
use crate::trouble::Trouble;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use synconce_sys::handover::Takeover;
use synconce_sys::process::{self, Side, WaitFor, Whose};
use synconce_sys::seccomp::Outer;
use synconce_sys::signals::{self, Reader, Received, Set};
use synconce_sys::{launch, origin};

mod signal {
    pub(super) const HUP: i32 = 1;
    pub(super) const INT: i32 = 2;
    pub(super) const QUIT: i32 = 3;
    pub(super) const USR1: i32 = 10;
    pub(super) const USR2: i32 = 12;
    pub(super) const TERM: i32 = 15;
    pub(super) const CONT: i32 = 18;
    pub(super) const TSTP: i32 = 20;
    pub(super) const TTIN: i32 = 21;
    pub(super) const TTOU: i32 = 22;
    pub(super) const XFSZ: i32 = 25;
    pub(super) const ALL: [i32; 10] = [HUP, INT, QUIT, USR1, USR2, TERM, CONT, TSTP, TTIN, TTOU];
    pub(super) const STOPS: [i32; 3] = [TSTP, TTIN, TTOU];
}

/// Makes the run that `options` asks for. Under a hold already, executes the
/// command in our place: the outermost run commits.
///
/// The process must have one thread.
///
/// # Errors
/// Set-up that failed before there was a supervisor.
pub fn run(options: &Options, observer: &mut dyn Observer) -> io::Result<Finished> {
    origin::forget_runtime_stdio();
    origin::learn_of_children();
    if is_held() {
        ask_outer_run(options);
        return Ok(execute_in_place(options));
    }
    // If the supervisor is killed, its children become ours.
    process::adopt_orphans()?;
    let set = Set::of(&signal::ALL);
    let mask = set.block();
    // At a limit of file sizes a write of ours shall fail (EFBIG), and not end us.
    Set::of(&[signal::XFSZ]).block();
    let signals = Reader::new(&set)?;
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let takeover = Takeover::new()?;
    match process::fork()? {
        Side::Child => {
            drop((ours, signals));
            process::exit_now(lifecycle::supervise(options, theirs, mask, takeover));
        }
        Side::Parent(supervisor) => {
            drop(theirs);
            let face = Face {
                socket: ours,
                signals,
                observer,
                supervisor,
                supervisor_end: end_of(supervisor),
                supervisor_ended: false,
                command: None,
                commits: options.commit,
                marker: None,
                early: Vec::new(),
                takeover,
                ending: Ending::Unknown,
                waiting: Vec::new(),
            };
            face.watch()
        }
    }
}

/// Whether we are in a run already, which holds and commits for all that we start:
/// [`run`] then executes the command in our place, and does not come back.
pub fn is_held() -> bool {
    let outer = outer();
    // A sealed hold outlives its run; then nobody would commit for us.
    outer == Outer::Supervised || outer == Outer::Sealed && has_supervisor()
}

/// Makes the run that we are in commit what `options` name: it commits the file systems on
/// which a sync was asked for.
fn ask_outer_run(options: &Options) {
    if options.commit_all {
        rustix::fs::sync();
    }
    for path in options.commit_only.iter().chain(&options.root) {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // What cannot be opened is for the command to report.
        let _ = rustix::fs::open(path, flags, Mode::empty()).and_then(rustix::fs::fsync);
    }
}

fn execute_in_place(options: &Options) -> Finished {
    let error = match launching::command(&options.command, None) {
        Ok(command) => launch::execute_in_place(&command),
        Err(error) => error,
    };
    Finished {
        ending: Ending::Unknown,
        accounts: Accounts::default(),
        outcome: Outcome::NotAsked,
        commit: None,
        trouble: Some(Trouble::Exec {
            command: options.command[0].to_string_lossy().into_owned(),
            errno: error.raw_os_error().unwrap_or(0),
        }),
        unfinished: Vec::new(),
    }
}

struct Face<'a> {
    socket: OwnedFd,
    signals: Reader,
    observer: &'a mut dyn Observer,
    supervisor: u32,
    /// Readable once the supervisor has ended. Its end of the socket may stay open
    /// longer: the child that is to execute the command shares its descriptors.
    supervisor_end: Option<OwnedFd>,
    supervisor_ended: bool,
    command: Option<u32>,
    /// Whether a commit was asked for.
    commits: bool,
    /// Where the marker is, from the moment at which calls may be held.
    marker: Option<Option<PathBuf>>,
    /// Signals that came before we knew of the command, and when: ticks since the boot.
    early: Vec<(Received, u64)>,
    takeover: Takeover,
    ending: Ending,
    waiting: Vec<PathBuf>,
}

impl Face<'_> {
    fn watch(mut self) -> io::Result<Finished> {
        loop {
            let mut fds = [self.socket.as_fd(), self.signals.as_fd(), self.third()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match rustix::event::poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let [message, signal, third] = fds.map(|fd| !fd.revents().is_empty());
            if signal && !self.pass_signals(None) {
                return Ok(self.unfinished());
            }
            if message {
                match receive(&self.socket) {
                    Ok(Some(message)) => {
                        if let Some(finished) = self.heed(message) {
                            return Ok(finished);
                        }
                    }
                    // It died, or said what no supervisor of ours says.
                    _ => return Ok(self.supervisor_died()),
                }
            } else if third {
                // The execution of the command may wait for an answer.
                self.supervisor_ended = true;
                self.release();
            }
        }
    }

    /// What else to wait for: the end of the supervisor, and then the listener, which the
    /// child that is to execute the command leaves to us.
    fn third(&self) -> BorrowedFd<'_> {
        match &self.supervisor_end {
            Some(_) if self.supervisor_ended => self.takeover.mailbox.as_fd(),
            Some(end) => end.as_fd(),
            None => self.socket.as_fd(),
        }
    }

    /// The supervisor has ended: lets every call go to the kernel. Survivors need that as
    /// well when the command had ended before.
    fn release(&self) {
        if let Some(listener) = self.takeover.mailbox.take() {
            orphaned::release(&listener, &self.takeover.handover);
        }
    }

    fn heed(&mut self, message: Message) -> Option<Finished> {
        match message {
            Message::Started { pid } => self.command_runs(pid),
            Message::Marked { path } => self.marker = Some(path),
            Message::Notice(notice) => self.observer.notice(&notice),
            Message::Stopped(signal) => {
                if self.command.is_some_and(|pid| job::stop_with(pid, signal)) {
                    // The command goes on already. What continued us waits to be read, and
                    // passed on it would undo the command's next stop.
                    self.pass_signals(Some(signal::CONT));
                }
            }
            Message::Ended(end) => {
                self.command = None;
                self.ending = end.into();
            }
            Message::Progress { waiting, dirty } => {
                self.observer.progress(&waiting, dirty);
                self.waiting = waiting;
            }
            Message::Done(summary) => return Some(self.done(*summary)),
            Message::Failed(trouble) => {
                let summary = Summary { trouble: Some(trouble), ..Summary::default() };
                return Some(self.done(summary));
            }
        }
        None
    }

    fn done(&mut self, summary: Summary) -> Finished {
        self.observer.progress_ends();
        if let Some(end) = summary.end {
            self.ending = end.into();
        }
        if !summary.stays {
            // With its end the command's processor time becomes ours, as time(1) expects.
            let ends = WaitFor { ends: true, block: true, ..WaitFor::default() };
            let _ = process::wait(Whose::Id(self.supervisor), ends);
        }
        Finished {
            ending: self.ending,
            accounts: summary.accounts,
            outcome: self.outcome(summary.trouble.as_ref(), summary.commit.as_ref()),
            commit: summary.commit,
            trouble: summary.trouble,
            unfinished: Vec::new(),
        }
    }

    /// The command runs as `pid`, and gets the signals that came before it was known.
    fn command_runs(&mut self, pid: u32) {
        self.command = Some(pid);
        for (received, arrived) in self.early.drain(..) {
            // In a job that there was already, the terminal told the command, too.
            let was_there = families::began(pid).is_some_and(|began| began < arrived);
            if received.by_process || !was_there {
                signals::send(pid, received.signal);
            }
        }
        // A pipe shall end when the command's copies do; we only give notices.
        process::give_up_inherited(Some(rustix::stdio::stderr()));
    }

    /// Passes signals on, but for `known`; `false` when the user gives up waiting
    /// for the commit.
    fn pass_signals(&mut self, known: Option<i32>) -> bool {
        while let Some(received) = self.signals.next() {
            match self.command {
                _ if Some(received.signal) == known => {}
                Some(pid) => pass(&received, pid),
                None if matches!(self.ending, Ending::Unknown) => {
                    self.early.push((received, families::ticks()));
                }
                None if signal::STOPS.contains(&received.signal) => {
                    signals::stop_by(received.signal);
                }
                None if Self::is_of_no_interest(received.signal) => {}
                None => return false,
            }
        }
        true
    }

    /// Whether `signal` says nothing about the commit: what the command could
    /// have been told by, and what our caller had us ignore (nohup).
    fn is_of_no_interest(signal: i32) -> bool {
        [signal::CONT, signal::USR1, signal::USR2].contains(&signal) || signals::is_ignored(signal)
    }

    fn unfinished(mut self) -> Finished {
        self.observer.progress_ends();
        Finished {
            ending: self.ending,
            accounts: Accounts::default(),
            outcome: self.outcome(Some(&Trouble::Commit), None),
            commit: None,
            trouble: Some(Trouble::Commit),
            unfinished: std::mem::take(&mut self.waiting),
        }
    }

    fn supervisor_died(mut self) -> Finished {
        self.observer.progress_ends();
        self.release();
        let started = self.takeover.handover.command();
        if let (Ending::Unknown, Some(pid)) = (self.ending, started) {
            self.command_runs(pid);
        }
        let masks = orphaned::give_masks_back(&self.takeover.handover, self.command);
        if let Some(pid) = self.command {
            self.attend_orphan(pid);
            orphaned::reap(pid);
        }
        orphaned::wait_for(masks);
        let trouble = Trouble::SupervisorDied { started: started.is_some() };
        Finished {
            ending: self.ending,
            accounts: Accounts::default(),
            outcome: self.outcome(Some(&trouble), None),
            commit: None,
            trouble: Some(trouble),
            unfinished: Vec::new(),
        }
    }

    /// What became of the work of a run that ends with `trouble`.
    fn outcome(&self, trouble: Option<&Trouble>, commit: Option<&CommitReport>) -> Outcome {
        match (trouble, &self.marker) {
            _ if !self.commits => Outcome::NotAsked,
            (None, _) if commit.is_none() => Outcome::NothingHeld,
            (None | Some(Trouble::Clear(_)), _) => Outcome::Committed,
            (Some(Trouble::Commit), None) => Outcome::Interrupted { marker: None },
            (Some(_), None) => Outcome::NothingHeld,
            (Some(_), Some(path)) => {
                Outcome::Interrupted { marker: path.clone().filter(|path| path.exists()) }
            }
        }
    }
}

impl Face<'_> {
    /// Passes signals on until the command `pid`, which is ours now, has ended.
    fn attend_orphan(&mut self, pid: u32) {
        // Without it the command is only waited for.
        let Some(end) = end_of(pid) else { return };
        loop {
            let mut fds =
                [PollFd::new(&end, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
            // An interruption only means to look again.
            let _ = rustix::event::poll(&mut fds, None);
            let [ended, signal] = fds.map(|fd| !fd.revents().is_empty());
            if ended {
                return;
            }
            if signal {
                self.pass_signals(None);
            }
        }
    }
}

/// A descriptor that is readable once the process `pid` has ended; `None` before Linux
/// 5.3, where a filter around us refuses pidfd_open(2), and for a process that is reaped.
fn end_of(pid: u32) -> Option<OwnedFd> {
    let id = rustix::process::Pid::from_raw(pid.cast_signed())?;
    rustix::process::pidfd_open(id, rustix::process::PidfdFlags::empty()).ok()
}

/// Passes on what reached us alone. What the terminal sent (Ctrl-C, Ctrl-Z, a
/// hang-up) reached the command as well.
///
/// So does what a process sends to our whole group (`kill(0)`, as timeout(1)
/// does), but nothing in `siginfo_t` tells it from what is for us: the command
/// gets it twice, which is better than never.
fn pass(received: &Received, command: u32) {
    if !received.by_process || received.sender == command {
        return;
    }
    if received.signal == signal::CONT {
        job::go_on(command);
    } else {
        signals::send(command, received.signal);
    }
}
