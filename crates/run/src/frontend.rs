//! The foreground process, which the user's shell sees.
//!
//! The frontend is in the terminal's job together with the command. It mirrors the command's
//! stops and exit status, passes on signals that were sent to it alone, and shows the progress
//! of the commit.

mod marker_disk;
mod passing;

use self::marker_disk::{MarkerWait, ends_wait};
pub(crate) use self::passing::pass;
use self::passing::{LastSignal, is_stop};
use crate::launching;
use crate::lifecycle;
use crate::options::RunOptions;
use crate::process::job;
use crate::process::process_tree;
use crate::process::supervisor_death;
use crate::report::finished::{Finished, Observer, RunOutcome};
use crate::report::protocol::{CommitReport, Ending, Message, Summary, receive};
use crate::report::run_error::RunError;
use crate::request::held::is_held;
use crate::watch::steps::remove_left_socket;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Signal;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use synconce_sys::handover::Takeover;
use synconce_sys::process::{self, Side, WaitFor, Whose};
use synconce_sys::signals::{self, Received, SignalReader, SignalSet};
use synconce_sys::{launch, origin};

/// Makes the run that `options` describe. If this process is in a run already, executes the
/// command in this process: the outermost run commits.
///
/// The process must have only one thread.
pub fn run(options: &RunOptions, observer: &mut dyn Observer) -> Finished {
    let adopted = process::adopts_orphans();
    let mask = SignalSet::from_numbers(&[]).block();
    let finished = set_up(options, observer).unwrap_or_else(|error| {
        Finished::failed(RunError::set_up("cannot set up the run", &error))
    });
    if !finished.began {
        // The caller may execute the command in this process. execve(2) keeps both attributes.
        if !adopted {
            process::leave_orphans();
        }
        mask.set();
    }
    finished
}

fn set_up(options: &RunOptions, observer: &mut dyn Observer) -> io::Result<Finished> {
    origin::forget_runtime_stdio();
    let is_inner = is_held();
    if let Some(why) = options.without_rules(is_inner) {
        return Ok(Finished::failed(RunError::Rules(why)));
    }
    if is_inner {
        ask_outer_run(options);
        return Ok(execute(options));
    }
    // If the supervisor is killed, its children become children of this process.
    process::adopt_orphans()?;
    let set = SignalSet::from_numbers(&signals::passed_on());
    let mask = set.block();
    let signals = SignalReader::new(&set)?;
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
            let frontend = Frontend {
                socket: ours,
                signals,
                observer,
                supervisor,
                supervisor_end: end_of(supervisor),
                supervisor_ended: false,
                command: None,
                options,
                marker_wait: MarkerWait::new(),
                may_hold: false,
                marker: None,
                early: Vec::new(),
                last: LastSignal::default(),
                takeover,
                ending: Ending::Unknown,
                waiting: Vec::new(),
            };
            Ok(frontend.watch())
        }
    }
}

/// Makes the outer run commit what `options` name: the outer run commits the file systems on
/// which a sync was asked for.
fn ask_outer_run(options: &RunOptions) {
    if options.commit_all {
        rustix::fs::sync();
    }
    for path in options.commit_only.iter().chain(&options.root) {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // A path that cannot be opened is left for the command to report.
        let _ = rustix::fs::open(path, flags, Mode::empty()).and_then(rustix::fs::fsync);
    }
}

/// Executes `words` in this process, whose syncs it does not hold. Returns only if that fails.
/// `words` must not be empty.
pub fn execute_unheld(words: &[OsString]) -> Finished {
    execute(&RunOptions { command: words.to_vec(), ..RunOptions::default() })
}

fn execute(options: &RunOptions) -> Finished {
    origin::forget_runtime_stdio();
    let error = match launching::command(options, None) {
        Ok(command) => launch::execute_in_place(&command),
        Err(error) => error,
    };
    Finished::failed(RunError::Exec {
        command: options.command[0].to_string_lossy().into_owned(),
        errno: error.raw_os_error().unwrap_or(0),
    })
}

struct Frontend<'a> {
    socket: OwnedFd,
    signals: SignalReader,
    observer: &'a mut dyn Observer,
    supervisor: u32,
    /// Readable once the supervisor has exited. The supervisor's end of the socket may stay
    /// open longer: the child that becomes the command shares its descriptors.
    supervisor_end: Option<OwnedFd>,
    supervisor_ended: bool,
    command: Option<u32>,
    options: &'a RunOptions,
    marker_wait: MarkerWait,
    /// Whether calls may have been held.
    may_hold: bool,
    /// The path of the marker, if the run has one.
    marker: Option<PathBuf>,
    /// Signals that arrived before the command's pid was known, and when, in ticks since the boot.
    early: Vec<(Received, u64)>,
    /// The last signal before the command had ended.
    last: LastSignal,
    takeover: Takeover,
    ending: Ending,
    waiting: Vec<PathBuf>,
}

impl Frontend<'_> {
    fn watch(mut self) -> Finished {
        loop {
            let mut fds = [self.socket.as_fd(), self.signals.as_fd(), self.third()]
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match rustix::event::poll(&mut fds, self.patience().as_ref()) {
                Ok(0) => match self.tell_of_marker_disk() {
                    Some(finished) => return finished,
                    None => continue,
                },
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    let error = RunError::set_up("cannot wait for the command", &error.into());
                    return self.broken_off(error);
                }
            }
            let [message, signal, third] = fds.map(|fd| !fd.revents().is_empty());
            if signal && !self.pass_signals(None) {
                return self.end_of_wait();
            }
            if message {
                match receive(&self.socket) {
                    Ok(Some(message)) => {
                        if let Some(finished) = self.handle(message) {
                            return finished;
                        }
                    }
                    // The supervisor died, or sent an invalid message.
                    _ => return self.supervisor_died(),
                }
            } else if third {
                // The command's execve(2) may wait for an answer.
                self.supervisor_ended = true;
                self.release();
            }
        }
    }

    /// Returns the third descriptor to wait for: the supervisor's pidfd until the supervisor
    /// has exited, then the mailbox, into which the child that becomes the command puts the
    /// listener.
    fn third(&self) -> BorrowedFd<'_> {
        match &self.supervisor_end {
            Some(_) if self.supervisor_ended => self.takeover.mailbox.as_fd(),
            Some(end) => end.as_fd(),
            None => self.socket.as_fd(),
        }
    }

    /// Lets every call go to the kernel, because the supervisor has exited. Survivors need
    /// this even if the command had ended before.
    fn release(&self) {
        if let Some(listener) = self.takeover.mailbox.take() {
            supervisor_death::release(&listener.into(), &self.takeover.handover);
        }
    }

    fn handle(&mut self, message: Message) -> Option<Finished> {
        match message {
            Message::Started { pid } => self.command_runs(pid),
            Message::Marked { path } => {
                (self.may_hold, self.marker) = (true, path.map(Into::into));
            }
            Message::Notice(notice) => self.observer.notice(&notice),
            Message::Stopped(signal) => {
                if self.command.is_some_and(|pid| job::stop_with(pid, signal)) {
                    // The command has been continued already. The SIGCONT that continued this
                    // process is still to be read; passed on, it would undo the command's next
                    // stop.
                    self.pass_signals(Some(Signal::CONT.as_raw()));
                }
            }
            Message::Ended(end) => self.command_ended(end),
            Message::Progress { waiting, dirty } => {
                self.observer.progress(&waiting, dirty);
                self.waiting = waiting;
            }
            Message::Done(summary) => return Some(self.done(*summary)),
            Message::Failed(error) => {
                let summary = Summary { error: Some(error), ..Summary::default() };
                return Some(self.done(summary));
            }
        }
        None
    }

    fn done(&mut self, summary: Summary) -> Finished {
        self.observer.progress_ends();
        match summary.end {
            Some(end) => self.ending = end,
            None => self.keep_early(),
        }
        if self.supervisor_lets_go(summary.stays) && !summary.stays {
            // Reaping adds the command's processor time to this process's, as time(1) expects.
            let ends = WaitFor { ends: true, block: true, ..WaitFor::default() };
            let _ = process::wait(Whose::Id(self.supervisor), ends);
        }
        Finished {
            began: summary.end.is_some(),
            ending: self.ending,
            accounts: summary.accounts,
            balance: summary.balance,
            outcome: self.outcome(summary.error.as_ref(), summary.commit.as_ref()),
            commit: summary.commit,
            error: summary.error,
            unfinished: Vec::new(),
        }
    }

    /// Records the pid of the command and sends it the signals that arrived before.
    fn command_runs(&mut self, pid: u32) {
        self.command = Some(pid);
        for (received, arrived) in self.early.drain(..) {
            // A process that was in the job already has received the terminal's signal as
            // well.
            let was_there = process_tree::began(pid).is_some_and(|began| began < arrived);
            if received.is_for(pid) || !was_there {
                signals::send(pid, received.signal);
            }
            self.last.note(received);
        }
        // A pipe must close when the command's copies close; this process only prints notices.
        process::give_up_inherited(Some(rustix::stdio::stderr()));
    }

    /// Sends this process the signals that arrived before a command that does not start. They
    /// are delivered once this process's mask is restored.
    fn keep_early(&mut self) {
        for (received, _) in self.early.drain(..) {
            signals::send(std::process::id(), received.signal);
        }
    }

    /// Passes signals on, except `known`. Returns `false` when the user stops waiting for the
    /// commit, or for a start that a frozen disk delays.
    fn pass_signals(&mut self, known: Option<i32>) -> bool {
        while let Some(received) = self.signals.next() {
            match self.command {
                _ if Some(received.signal) == known => {}
                Some(pid) => {
                    pass(&received, pid);
                    self.last.note(received);
                }
                None if matches!(self.ending, Ending::Unknown) => {
                    self.early.push((received, process_tree::ticks()));
                    if self.gives_up_start() {
                        return false;
                    }
                }
                None if is_stop(received.signal) => signals::stop_by(received.signal),
                None if self.last.is_same(&received) => {}
                None if ends_wait(received.signal) => return false,
                None => {}
            }
        }
        true
    }

    fn supervisor_died(mut self) -> Finished {
        self.observer.progress_ends();
        self.release();
        let started = self.takeover.handover.command();
        match started {
            Some(pid) if matches!(self.ending, Ending::Unknown) => self.command_runs(pid),
            Some(_) => {}
            None => self.keep_early(),
        }
        let masks = supervisor_death::restore_masks(&self.takeover.handover, self.command);
        if let Some(pid) = self.command {
            self.attend_orphan(pid);
            supervisor_death::reap(pid);
        }
        supervisor_death::wait_for(masks);
        if self.options.watch_steps {
            remove_left_socket();
        }
        let error = supervisor_death::error(self.supervisor, started.is_some());
        Finished { began: started.is_some(), ..self.broken_off(error) }
    }

    /// Returns the end of a run that this process stops following because of `error`. The
    /// command may have started.
    fn broken_off(&self, error: RunError) -> Finished {
        let outcome = self.outcome(Some(&error), None);
        Finished { began: true, ending: self.ending, outcome, ..Finished::failed(error) }
    }

    /// Returns what became of the work of a run that ends with `error`.
    fn outcome(&self, error: Option<&RunError>, commit: Option<&CommitReport>) -> RunOutcome {
        match error {
            _ if !self.options.commit => RunOutcome::NotAsked,
            None if commit.is_none() => RunOutcome::NothingHeld,
            None | Some(RunError::Clear(_)) => RunOutcome::Committed,
            Some(error) if self.may_hold || *error == RunError::Commit => {
                RunOutcome::Interrupted { marker: self.marker.clone().filter(|path| path.exists()) }
            }
            Some(_) => RunOutcome::NothingHeld,
        }
    }
}

impl Frontend<'_> {
    /// Passes signals on until the command `pid`, now a child of this process, has ended.
    fn attend_orphan(&mut self, pid: u32) {
        // Without a pidfd no signals are passed on; the caller waits for the command.
        let Some(end) = end_of(pid) else { return };
        loop {
            let mut fds =
                [PollFd::new(&end, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
            // EINTR only repeats the loop.
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

/// Returns a descriptor that is readable once the process `pid` has exited. Returns `None`
/// before Linux 5.3, if an outer filter refuses pidfd_open(2), and if the process was reaped.
fn end_of(pid: u32) -> Option<OwnedFd> {
    let id = rustix::process::Pid::from_raw(pid.cast_signed())?;
    rustix::process::pidfd_open(id, rustix::process::PidfdFlags::empty()).ok()
}
