//! The loop that receives calls, reaps children, and minds the face.

use crate::accounts::End;
use crate::answers::{Waiting, may_block};
use crate::families::{self, Job};
use crate::judge::{Judge, Judged};
use crate::options::Options;
use crate::protocol::{CommandEnd, Message, offer};
use crate::rights::Gain;
use crate::serve::released_answer;
use crate::state::Shared;
use crate::targets::Targets;
use crate::workers::{After, Workers};
use rustix::event::{PollFd, PollFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use synconce_filter::Call;
use synconce_sys::notify::{Answer, Listener, Notification};
use synconce_sys::process::{self, Change, WaitFor, Whose};
use synconce_sys::signals::{self, Reader};

/// Why the loop ended.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The command ended.
    Ended(CommandEnd),
    /// The face is gone: the run was cut short.
    FaceGone,
}

/// The state of the loop.
pub(crate) struct Supervisor<'a> {
    listener: Option<Arc<Listener>>,
    judge: Option<Arc<Judge>>,
    state: Shared,
    workers: Workers,
    targets: Targets,
    face: Arc<OwnedFd>,
    signals: &'a Reader,
    command: u32,
    /// Whether the face was ever told of a stop.
    stopped: bool,
    /// A child is in a ptrace stop, or may be, which hides others that have ended.
    reap_again: bool,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        options: &Options,
        listener: Option<Arc<Listener>>,
        face: Arc<OwnedFd>,
        signals: &'a Reader,
        command: u32,
        state: Shared,
    ) -> Self {
        let judge = listener.clone().map(|listener| {
            let (face, state) = (Arc::clone(&face), state.clone());
            Arc::new(Judge::new(options, listener, face, command, state))
        });
        Self {
            listener,
            judge,
            state,
            workers: Workers::new(),
            targets: Targets::default(),
            face,
            signals,
            command,
            stopped: false,
            reap_again: false,
        }
    }

    /// The user was told that a program of this kind gains no rights.
    pub(crate) fn told_of(&self, gain: Gain) {
        self.state.lock().rights_told.insert(gain);
    }

    /// Answers until the command ends or the face is gone, and lets go of all threads.
    /// `first_call` has been received already.
    pub(crate) fn run(mut self, first_call: Option<Notification>) -> Stopped {
        if let Some(notification) = first_call {
            self.answer(&notification);
        }
        let mut listening = self.listener.clone();
        let stopped = loop {
            let again = self.reap_again;
            let ready = wait(listening.as_deref(), self.signals, &self.face, again);
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
            if ready.face {
                break Stopped::FaceGone;
            }
        };
        self.settle();
        self.wake_face_for_good();
        stopped
    }

    fn answer(&mut self, notification: &Notification) {
        let Some(judge) = &self.judge else { return };
        let Some((abi, call)) = Call::identify(notification.arch, notification.number) else {
            // Our filter stops nothing else; whatever it is, the kernel does it.
            return self.let_through(notification.id, released_answer(notification));
        };
        let waiting = Waiting { notification: *notification, abi, call };
        let answers_here = !may_block(call);
        if answers_here && judge.judge(&mut self.targets, &waiting, false) != Judged::Patience {
            return;
        }
        let (worker, mut targets) = (Arc::clone(judge), self.targets.patient());
        // A patient look-up misses nothing.
        let job = move || match worker.judge(&mut targets, &waiting, true) {
            Judged::Left => After::End,
            Judged::Done | Judged::Patience => After::Idle,
        };
        if self.workers.run(job).is_ok() {
            return;
        }
        // No thread can be had, at the limit of processes.
        if !answers_here || judge.judge(&mut self.targets, &waiting, true) == Judged::Patience {
            // A sync too many is safe.
            self.state.lock().accounts.count(call.name(), None, End::Passed);
            self.let_through(notification.id, Answer::Continue);
        }
    }

    fn let_through(&self, id: u64, answer: Answer) {
        if let Some(listener) = &self.listener {
            // An error means that the caller is gone.
            let _ = listener.answer(id, answer);
        }
    }

    /// Reaps what has ended and passes the command's stops on.
    fn reap(&mut self) -> Option<CommandEnd> {
        let mut end = None;
        let peek = WaitFor { ends: true, peek: true, ..WaitFor::default() };
        let take = WaitFor { ends: true, ..WaitFor::default() };
        self.reap_again = self.workers.busy() > 0;
        while let Ok(Some((pid, change))) = process::wait(Whose::Any, peek) {
            if matches!(change, Change::Trapped(_)) {
                // A call is being changed; its thread takes this stop, and we come back.
                self.reap_again = true;
                break;
            }
            // It has ended, so this takes exactly what was seen.
            let _ = process::wait(Whose::Id(pid), take);
            match change {
                Change::Exited(code) if pid == self.command => end = Some(CommandEnd::Exited(code)),
                Change::Killed(by) if pid == self.command => end = Some(CommandEnd::Killed(by)),
                _ => {}
            }
        }
        if end.is_none() {
            self.pass_stops_on();
        }
        end
    }

    /// The face stops when the command does.
    fn pass_stops_on(&mut self) {
        let judge = self.judge.clone();
        let untraced = judge.as_ref().map(|judge| judge.untraced());
        if matches!(untraced, Some(None)) {
            // Not now: it would take a stop that the tracer waits for.
            self.reap_again = true;
            return;
        }
        let take = WaitFor { stops: true, ..WaitFor::default() };
        let peek = WaitFor { peek: true, ..take };
        let seen = process::wait(Whose::Id(self.command), peek);
        // A thread that is traced by another id may have become the first by executing.
        self.reap_again |= matches!(seen, Ok(Some((_, Change::Trapped(_)))));
        if let Ok(Some((_, Change::Stopped(signal)))) = seen {
            let _ = process::wait(Whose::Id(self.command), take);
            offer(&*self.face, &Message::Stopped(signal));
            self.stopped = true;
        }
    }

    /// The command has ended, perhaps while the face was on its way into a stop with it.
    fn wake_face_for_good(&self) {
        for _ in 0..WAKES * u32::from(self.stopped) {
            wake_face();
            std::thread::sleep(TICK);
        }
    }

    /// Waits a moment for calls that are being changed, which may be notified a
    /// second time; one that blocks stays.
    fn settle(&mut self) {
        for _ in 0..100 {
            if self.workers.busy() == 0 {
                return;
            }
            self.answer_soon();
        }
    }

    /// Answers a call that comes within a millisecond.
    fn answer_soon(&mut self) {
        let Some(listener) = self.listener.clone() else { return };
        let mut fds = [PollFd::new(&*listener, PollFlags::IN)];
        let tick = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let waits = rustix::event::poll(&mut fds, Some(&tick)).is_ok_and(|ready| ready > 0);
        if waits && !fds[0].revents().contains(PollFlags::IN) {
            // Nobody is left to call.
            std::thread::sleep(Duration::from_millis(1));
        } else if waits && let Ok(Some(notification)) = listener.receive() {
            self.answer(&notification);
        }
    }
}

/// The face may be on its way into its stop when the command ends: looks, a tick apart.
const WAKES: u32 = 20;
const TICK: Duration = Duration::from_millis(5);
const SIGCONT: i32 = 18;

/// Continues the face if it is stopped. It is our parent as long as it lives.
fn wake_face() {
    let face = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if let Some(face) = face.filter(|face| families::job(*face) == Job::Stopped) {
        signals::send(face, SIGCONT);
    }
}

#[derive(Default)]
struct Ready {
    call: bool,
    unused: bool,
    signal: bool,
    face: bool,
}

/// Waits for something to do; with `again`, not for long.
fn wait(listener: Option<&Listener>, signals: &Reader, face: &OwnedFd, again: bool) -> Ready {
    let third = listener.map_or(signals.as_fd(), AsFd::as_fd);
    let mut fds = [signals.as_fd(), face.as_fd(), third]
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let tick = rustix::time::Timespec::try_from(TICK).ok().filter(|_| again);
    if rustix::event::poll(&mut fds, tick.as_ref()).is_err() {
        return Ready::default();
    }
    let [signal, face, call] = fds.map(|fd| fd.revents());
    let call = if listener.is_some() { call } else { PollFlags::empty() };
    Ready {
        call: call.contains(PollFlags::IN),
        unused: !call.contains(PollFlags::IN) && call.contains(PollFlags::HUP),
        signal: signal.contains(PollFlags::IN),
        face: !face.is_empty(),
    }
}
