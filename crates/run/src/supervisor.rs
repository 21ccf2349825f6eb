//! The supervisor's loop: receives calls, reaps children, and watches the frontend.

use crate::call::fd_info::FdInfo;
use crate::call::policy::PendingCall;
use crate::call::responder::Responder;
use crate::call::rules::Blocking;
use crate::call::rules::Rules;
use crate::call::serve::released_answer;
use crate::call::workers::{After, Workers};
use crate::commit::checkpoints;
use crate::commit::state::SharedState;
use crate::options::RunOptions;
use crate::process::process_tree::{self, JobState};
use crate::report::accounts::{End, PassReason};
use crate::report::protocol::{Ending, Message, try_send};
use crate::request::presence::Presence;
use crate::watch::Watch;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use synconce_filter::{Call, CallProperty};
use synconce_sys::notify::{Answer, Listener, Notification};
use synconce_sys::process::{self, ChildChange, WaitFor, Whose};
use synconce_sys::signals::{self, SignalReader};

/// Why the loop ended.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The command ended.
    Ended(Ending),
    /// The frontend has exited: the run was cut short.
    FrontendGone,
}

/// The state of the loop.
pub(crate) struct Supervisor<'a> {
    listener: Option<Arc<Listener>>,
    responder: Option<Arc<Responder>>,
    state: SharedState,
    workers: Workers,
    fd_info: FdInfo,
    rules: Option<Arc<Rules>>,
    frontend: Arc<OwnedFd>,
    signals: &'a SignalReader,
    command: u32,
    presence: Option<Presence>,
    /// Whether a stop was ever reported to the frontend.
    stopped: bool,
    /// Whether a child may be in a ptrace stop, which hides other children that have exited.
    reap_again: bool,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        options: &RunOptions,
        listener: Option<Arc<Listener>>,
        frontend: Arc<OwnedFd>,
        signals: &'a SignalReader,
        command: u32,
        presence: Option<Presence>,
        state: SharedState,
    ) -> Self {
        let responder = listener.clone().map(|listener| {
            let (frontend, state) = (Arc::clone(&frontend), state.clone());
            Arc::new(Responder::new(options, listener, frontend, command, state))
        });
        Self {
            listener,
            responder,
            state,
            workers: Workers::new(),
            fd_info: FdInfo::default(),
            rules: None,
            frontend,
            signals,
            command,
            presence,
            stopped: false,
            reap_again: false,
        }
    }

    /// Returns the supervisor, following `rules`.
    pub(crate) fn following(self, rules: Option<Arc<Rules>>) -> Self {
        Self { fd_info: FdInfo::following(rules.clone()), rules, ..self }
    }

    /// Returns what times the calls, in a run that holds nothing.
    pub(crate) fn watch(&self) -> Option<Arc<Watch>> {
        self.responder.as_ref()?.watch().cloned()
    }

    /// Answers calls until the command ends or the frontend exits, then waits briefly for
    /// calls that are being changed.
    pub(crate) fn run(mut self) -> Stopped {
        let mut listening = self.listener.clone();
        let stopped = loop {
            let again = self.reap_again;
            let ready = self.wait(listening.as_deref(), again);
            if ready.call
                && let Some(Ok(Some(notification))) = listening.as_deref().map(Listener::receive)
            {
                self.answer(&notification);
            }
            if ready.unused {
                listening = None;
            }
            if ready.signal {
                while self.signals.next().is_some() {}
            }
            if (ready.signal || again)
                && let Some(end) = self.reap()
            {
                break Stopped::Ended(end);
            }
            if ready.connection {
                self.accept();
            }
            if ready.frontend {
                break Stopped::FrontendGone;
            }
        };
        self.settle();
        if let (Stopped::Ended(end), Some(responder)) = (&stopped, &self.responder)
            && let Some(watch) = responder.watch()
        {
            watch.end(*end);
        }
        self.wake_frontend_for_good();
        stopped
    }

    /// Answers processes that have connected. After an error that would come again at once, such
    /// as `EMFILE`, no more are answered.
    fn accept(&mut self) {
        match self.presence.as_ref().map(Presence::accept) {
            Some(Ok(allowed)) => {
                for caller in allowed {
                    checkpoints::serve_if_asked(&self.state, caller);
                }
            }
            _ => self.presence = None,
        }
    }

    /// Waits for an event; with `again`, for at most a tick.
    fn wait(&self, listener: Option<&Listener>, again: bool) -> Ready {
        // A descriptor in the place of one that is missing.
        let other = self.signals.as_fd();
        let call = listener.map_or(other, AsFd::as_fd);
        let connection = self.presence.as_ref().map_or(other, AsFd::as_fd);
        let changes = self.rules.as_ref().and_then(|rules| rules.mount_changes());
        let [signal, frontend, call, connection] = [other, self.frontend.as_fd(), call, connection]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let changes = PollFd::from_borrowed_fd(changes.unwrap_or(other), PollFlags::PRI);
        let mut fds = [signal, frontend, call, connection, changes];
        let tick = rustix::time::Timespec::try_from(TICK).ok().filter(|_| again);
        if rustix::event::poll(&mut fds, tick.as_ref()).is_err() {
            return Ready::default();
        }
        let [signal, frontend, call, connection, changes] = fds.map(|fd| fd.revents());
        if changes.contains(PollFlags::PRI)
            && let Some(rules) = &self.rules
        {
            rules.forget_mounts();
        }
        let call = if listener.is_some() { call } else { PollFlags::empty() };
        Ready {
            call: call.contains(PollFlags::IN),
            unused: !call.contains(PollFlags::IN) && call.contains(PollFlags::HUP),
            signal: signal.contains(PollFlags::IN),
            frontend: !frontend.is_empty(),
            connection: self.presence.is_some() && connection.contains(PollFlags::IN),
        }
    }

    fn answer(&mut self, notification: &Notification) {
        let Some(responder) = &self.responder else { return };
        let Some((abi, call)) = Call::identify(notification.arch, notification.number) else {
            // The filter stops no other call; the kernel executes an unknown call.
            return self.let_through(notification.id, released_answer(notification));
        };
        let pending = PendingCall { notification: *notification, abi, call };
        let answers_here = call.is(CallProperty::AtOnce);
        let here = Blocking::Refused;
        if answers_here && responder.answer(&mut self.fd_info, &pending, here).is_ok() {
            return;
        }
        let (worker, mut fd_info) = (Arc::clone(responder), self.fd_info.may_block());
        // A worker may block, so its look-up always has a result.
        let there = Blocking::Allowed;
        let job = move || worker.answer(&mut fd_info, &pending, there).unwrap_or(After::Idle);
        if self.workers.run(job).is_ok() {
            return;
        }
        // No thread can be created: the limit of processes is reached. The loop waits for no disk.
        let here = if responder.watch().is_none() { Blocking::Allowed } else { Blocking::Refused };
        if !answers_here || responder.answer(&mut self.fd_info, &pending, here).is_err() {
            // An extra sync is safe.
            let end = End::Passed(PassReason::Uncovered);
            self.state.lock().notes.accounts.count(call.name(), None, end);
            self.let_through(notification.id, Answer::Continue);
        }
    }

    fn let_through(&self, id: u64, answer: Answer) {
        if let Some(listener) = &self.listener {
            // An error means that the caller has exited.
            let _ = listener.answer(id, answer);
        }
    }

    /// Reaps children that have exited, and passes the command's stops on to the frontend.
    fn reap(&mut self) -> Option<Ending> {
        let mut end = None;
        let peek = WaitFor { ends: true, peek: true, ..WaitFor::default() };
        let take = WaitFor { ends: true, ..WaitFor::default() };
        self.reap_again = self.workers.busy() > 0;
        while let Ok(Some((pid, change))) = process::wait(Whose::Any, peek) {
            if matches!(change, ChildChange::Trapped(_)) {
                // A call is being changed; its tracer thread takes this stop, and the loop
                // tries again later.
                self.reap_again = true;
                break;
            }
            // The child has exited, so this wait takes exactly the change that was seen.
            let _ = process::wait(Whose::Id(pid), take);
            match change {
                ChildChange::Exited(code) if pid == self.command => {
                    end = Some(Ending::Exited(code));
                }
                ChildChange::Killed(by) if pid == self.command => end = Some(Ending::Killed(by)),
                _ => {}
            }
        }
        if end.is_none() {
            self.pass_stops_on();
        }
        end
    }

    /// Reports a stop of the command, so that the frontend stops as well.
    fn pass_stops_on(&mut self) {
        let responder = self.responder.clone();
        let untraced = responder.as_ref().map(|responder| responder.untraced());
        if matches!(untraced, Some(None)) {
            // A thread is being traced: a wait here would consume the stop that the tracer waits
            // for. So the stops are passed on later.
            self.reap_again = true;
            return;
        }
        let take = WaitFor { stops: true, ..WaitFor::default() };
        let peek = WaitFor { peek: true, ..take };
        let seen = process::wait(Whose::Id(self.command), peek);
        // A traced thread with another id becomes the thread group leader by execve(2).
        self.reap_again |= matches!(seen, Ok(Some((_, ChildChange::Trapped(_)))));
        if let Ok(Some((_, ChildChange::Stopped(signal)))) = seen {
            let _ = process::wait(Whose::Id(self.command), take);
            try_send(&*self.frontend, &Message::Stopped(signal));
            self.stopped = true;
        }
    }

    /// Continues the frontend, which may be about to stop although the command has ended.
    fn wake_frontend_for_good(&self) {
        for _ in 0..WAKES * u32::from(self.stopped) {
            wake_frontend();
            std::thread::sleep(TICK);
        }
    }

    /// Waits a moment for calls that are being changed, which may be notified a second time. A
    /// call that blocks is left alone.
    fn settle(&mut self) {
        for _ in 0..100 {
            if self.workers.busy() == 0 {
                return;
            }
            self.answer_soon();
        }
    }

    /// Answers a call that arrives within a millisecond.
    fn answer_soon(&mut self) {
        let Some(listener) = self.listener.clone() else { return };
        let mut fds = [PollFd::new(&*listener, PollFlags::IN)];
        let tick = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let waits = rustix::event::poll(&mut fds, Some(&tick)).is_ok_and(|ready| ready > 0);
        if waits && !fds[0].revents().contains(PollFlags::IN) {
            // No process under the filter is left.
            std::thread::sleep(Duration::from_millis(1));
        } else if waits && let Ok(Some(notification)) = listener.receive() {
            self.answer(&notification);
        }
    }
}

/// How often the frontend is checked, a tick apart: it may be about to stop when the command
/// ends.
const WAKES: u32 = 20;
const TICK: Duration = Duration::from_millis(5);

/// Continues the frontend if it is stopped. The frontend is the parent as long as it lives.
fn wake_frontend() {
    let frontend = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if let Some(frontend) =
        frontend.filter(|frontend| process_tree::job(*frontend) == JobState::Stopped)
    {
        signals::send(frontend, Signal::CONT.as_raw());
    }
}

#[derive(Default)]
struct Ready {
    call: bool,
    unused: bool,
    signal: bool,
    frontend: bool,
    connection: bool,
}
