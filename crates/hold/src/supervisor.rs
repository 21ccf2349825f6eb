//! The loop that answers calls, reaps children, and minds the face.

use crate::accounts::{Accounts, End};
use crate::answers::{Change, Decision, Waiting, decide};
use crate::held::HANDSHAKE_VALUE;
use crate::options::Options;
use crate::protocol::{CommandEnd, Message, Notice, send};
use crate::rewrite::{Rewritten, rewrite};
use crate::serve::released_answer;
use crate::targets::Targets;
use rustix::event::{PollFd, PollFlags};
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use synconce_filter::Call;
use synconce_probe::mounts::DeviceId;
use synconce_sys::notify::{Answer, Listener, Notification};
use synconce_sys::process::{self, Change as ChildChange, WaitFor, Whose};
use synconce_sys::signals::Reader;

/// What the loop asks of the rest of the run.
pub(crate) trait Ledger {
    /// Makes the marker durable; nothing may be held when this fails.
    ///
    /// # Errors
    /// What the user is told.
    fn engage(&mut self) -> Result<(), String>;
    /// Lets go of the mount, which is about to be unmounted.
    fn unmount(&mut self, mount: u64);
    /// Notes that data of `device` were held back; `via` leads to a file there.
    fn held_on(&mut self, device: DeviceId, via: (u32, Option<i32>));
}

/// Why the loop ended.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The command ended.
    Ended(CommandEnd),
    /// The face is gone: the run was cut short.
    FaceGone,
}

/// A descriptor whose sync flag was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unsynced {
    pub device: u64,
    pub inode: u64,
}

struct Finished {
    waiting: Waiting,
    program: Option<String>,
    rewritten: Rewritten,
    unsynced: Option<Unsynced>,
}

/// The state of the loop.
pub(crate) struct Supervisor<'a, L: Ledger> {
    options: &'a Options,
    listener: Option<Arc<Listener>>,
    face: &'a OwnedFd,
    signals: &'a Reader,
    command: u32,
    ledger: &'a mut L,
    targets: Targets,
    pub accounts: Accounts,
    /// Descriptors that were opened without their sync flag.
    pub unsynced: HashSet<Unsynced>,
    /// Why nothing can be held.
    pub failure: Option<String>,
    rights_told: bool,
    rewriting: Arc<AtomicUsize>,
    /// A child was seen in a ptrace stop, which hides others that may have ended.
    reap_again: bool,
    finished: (mpsc::Sender<Finished>, mpsc::Receiver<Finished>),
}

impl<'a, L: Ledger> Supervisor<'a, L> {
    pub(crate) fn new(
        options: &'a Options,
        listener: Option<Arc<Listener>>,
        face: &'a OwnedFd,
        signals: &'a Reader,
        command: u32,
        ledger: &'a mut L,
    ) -> Self {
        Self {
            options,
            listener,
            face,
            signals,
            command,
            ledger,
            targets: Targets::default(),
            accounts: Accounts::default(),
            unsynced: HashSet::new(),
            failure: None,
            rights_told: false,
            rewriting: Arc::default(),
            reap_again: false,
            finished: mpsc::channel(),
        }
    }

    /// Answers until the command ends or the face is gone.
    pub(crate) fn run(&mut self) -> Stopped {
        let mut listening = self.listener.clone();
        loop {
            let again = self.reap_again || self.rewriting.load(SeqCst) > 0;
            let ready = wait(listening.as_deref(), self.signals, self.face, again);
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
                self.settle();
                return Stopped::Ended(end);
            }
            if ready.face {
                self.settle();
                return Stopped::FaceGone;
            }
        }
    }

    /// Reaps what has ended and passes the command's stops on.
    fn reap(&mut self) -> Option<CommandEnd> {
        let mut end = None;
        let peek = WaitFor {
            ends: true,
            peek: true,
            ..WaitFor::default()
        };
        let take = WaitFor {
            ends: true,
            ..WaitFor::default()
        };
        self.reap_again = false;
        while let Ok(Some((pid, change))) = process::wait(Whose::Any, peek) {
            if change == ChildChange::Trapped {
                // A rewrite is under way; its thread takes this stop, and we come back.
                self.reap_again = true;
                break;
            }
            // It has ended, so this takes exactly what was seen.
            let _ = process::wait(Whose::Id(pid), take);
            match change {
                ChildChange::Exited(code) if pid == self.command => {
                    end = Some(CommandEnd::Exited(code));
                }
                ChildChange::Killed(signal) if pid == self.command => {
                    end = Some(CommandEnd::Killed(signal));
                }
                _ => {}
            }
        }
        if end.is_none() && self.rewriting.load(SeqCst) == 0 {
            self.pass_stop_on();
        }
        end
    }

    fn pass_stop_on(&self) {
        let stops = WaitFor {
            stops: true,
            ..WaitFor::default()
        };
        let stopped = process::wait(Whose::Id(self.command), stops);
        if let Ok(Some((_, ChildChange::Stopped(signal)))) = stopped {
            // The face's end is noticed by the loop.
            let _ = send(self.face, &Message::Stopped(signal), None);
        }
    }

    fn answer(&mut self, notification: &Notification) {
        let answer = match Call::identify(notification.arch, notification.number) {
            Some((abi, call)) if self.failure.is_none() => {
                let waiting = Waiting {
                    notification: *notification,
                    abi,
                    call,
                };
                match self.consider(&waiting) {
                    Some(answer) => answer,
                    None => return,
                }
            }
            _ => released_answer(notification),
        };
        if let Some(listener) = &self.listener {
            // An error means that the caller is gone; nothing was done in its name.
            let _ = listener.answer(notification.id, answer);
        }
    }

    /// The answer to a call; `None` when a rewrite will answer.
    fn consider(&mut self, waiting: &Waiting) -> Option<Answer> {
        match decide(&mut self.targets, waiting, self.options) {
            Decision::Hold(devices) => {
                if !self.engage(waiting, &devices) {
                    return Some(Answer::Continue);
                }
                self.count(waiting, End::Held);
                Some(Answer::Value(0))
            }
            Decision::Rewrite(change) => {
                if !self.engage(waiting, &change.devices) {
                    return Some(Answer::Continue);
                }
                self.start_rewrite(waiting, change)
            }
            Decision::Pass => {
                self.count(waiting, End::Passed);
                Some(Answer::Continue)
            }
            Decision::Refuse(errno) => {
                self.count(waiting, End::Refused);
                Some(Answer::Errno(errno))
            }
            Decision::Ignore => Some(Answer::Continue),
            Decision::Handshake => Some(Answer::Value(HANDSHAKE_VALUE)),
            Decision::Unmount(mount) => {
                self.targets.forget();
                mount
                    .into_iter()
                    .for_each(|mount| self.ledger.unmount(mount));
                Some(Answer::Continue)
            }
            Decision::GainRights(path) => {
                if !std::mem::replace(&mut self.rights_told, true) {
                    self.tell(Notice::NoRightsGained(path));
                }
                Some(Answer::Continue)
            }
        }
    }

    /// Makes the marker durable before anything is held.
    fn engage(&mut self, waiting: &Waiting, devices: &[DeviceId]) -> bool {
        if let Err(error) = self.ledger.engage() {
            self.failure = Some(error);
            // The command cannot be held as was asked, so it shall not go on.
            synconce_sys::signals::send(self.command, SIGTERM);
            return false;
        }
        let descriptor = synconce_filter::args::descriptor(waiting.notification.args[0]);
        for device in devices {
            self.ledger
                .held_on(*device, (waiting.notification.thread, Some(descriptor)));
        }
        true
    }

    fn count(&mut self, waiting: &Waiting, end: End) {
        let program = if self.options.by_program {
            waiting.program()
        } else {
            None
        };
        self.accounts
            .count(waiting.call.name(), program.as_deref(), end);
    }

    fn tell(&self, notice: Notice) {
        // The face's end is noticed by the loop.
        let _ = send(self.face, &Message::Notice(notice), None);
    }

    /// Starts a rewrite on a thread of its own: the call may block as long as
    /// it likes (a FIFO), and a tracer is a thread.
    fn start_rewrite(&mut self, waiting: &Waiting, change: Change) -> Option<Answer> {
        let listener = Arc::clone(self.listener.as_ref()?);
        let program = if self.options.by_program {
            waiting.program()
        } else {
            None
        };
        let (sender, waiting) = (self.finished.0.clone(), *waiting);
        let rewriting = Arc::clone(&self.rewriting);
        rewriting.fetch_add(1, SeqCst);
        let run = move || {
            let rewritten = rewrite(&listener, &waiting, &change);
            let unsynced = match rewritten {
                Rewritten::Done(fd) if change.opens => unsynced(waiting.notification.thread, fd),
                _ => None,
            };
            // Nobody receives once the run is over.
            let _ = sender.send(Finished {
                waiting,
                program,
                rewritten,
                unsynced,
            });
            rewriting.fetch_sub(1, SeqCst);
        };
        let thread = std::thread::Builder::new()
            .name("rewrite".into())
            .stack_size(128 * 1024);
        match thread.spawn(run) {
            Ok(_) => {
                self.drain();
                None
            }
            Err(_) => {
                self.rewriting.fetch_sub(1, SeqCst);
                self.count(&waiting, End::Passed);
                Some(Answer::Continue)
            }
        }
    }

    /// Takes the results of finished rewrites into the accounts.
    fn drain(&mut self) {
        while let Ok(finished) = self.finished.1.try_recv() {
            let end = match finished.rewritten {
                Rewritten::Done(value) if value >= 0 => End::Held,
                Rewritten::Passed => End::Passed,
                Rewritten::Done(_) | Rewritten::Dropped => continue,
            };
            let name = finished.waiting.call.name();
            self.accounts.count(name, finished.program.as_deref(), end);
            self.unsynced.extend(finished.unsynced);
        }
    }

    /// Waits a moment for rewrites that are under way; one that blocks stays.
    fn settle(&mut self) {
        for _ in 0..50 {
            if self.rewriting.load(SeqCst) == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.drain();
    }
}

const SIGTERM: i32 = 15;

fn unsynced(thread: u32, fd: i64) -> Option<Unsynced> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(format!("/proc/{thread}/fd/{fd}")).ok()?;
    Some(Unsynced {
        device: meta.dev(),
        inode: meta.ino(),
    })
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
    let tick = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 5_000_000,
    };
    if rustix::event::poll(&mut fds, again.then_some(&tick)).is_err() {
        return Ready::default();
    }
    let [signal, face, call] = fds.map(|fd| fd.revents());
    let call = if listener.is_some() {
        call
    } else {
        PollFlags::empty()
    };
    Ready {
        call: call.contains(PollFlags::IN),
        unused: !call.contains(PollFlags::IN) && call.contains(PollFlags::HUP),
        signal: signal.contains(PollFlags::IN),
        face: !face.is_empty(),
    }
}
