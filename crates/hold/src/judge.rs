//! Answers one call: decides, makes the marker durable, holds, counts.

use crate::accounts::End;
use crate::active::{Done, Via, Work};
use crate::answers::{Change, Decision, Waiting, decide};
use crate::claims::{Claim, Claims};
use crate::families;
use crate::held::HANDSHAKE_VALUE;
use crate::options::Options;
use crate::protocol::{Message, Notice, offer, send};
use crate::rewrite::{Rewrite, Rewritten};
use crate::rights::Gain;
use crate::state::{Admitted, Changing, Shared, State, Unsynced};
use crate::targets::Targets;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use synconce_durable::mutant;
use synconce_filter::Call;
use synconce_probe::mounts::DeviceId;
use synconce_sys::notify::{Answer, Listener};
use synconce_sys::write_back;

/// `pidfd_open(2)`, Linux 6.9; rustix has no name for it.
const PIDFD_THREAD: u32 = 0o200;

/// How far a judge came with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It is answered, or nobody waits for an answer any more.
    Done,
    /// That takes patient targets, and a thread that may wait.
    Patience,
    /// As done, but the calling thread has to end, to let go of the caller.
    Left,
}

/// What is answered, and what was counted for that.
struct Reply {
    answer: Answer,
    /// The end, and the program's name.
    counted: Option<(End, Option<String>)>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self { answer, counted: None }
    }
}

/// Answers calls, from any thread.
pub(crate) struct Judge {
    options: Options,
    listener: Arc<Listener>,
    face: Arc<OwnedFd>,
    command: u32,
    state: Shared,
    /// Whether `/proc` shows callers.
    looks: bool,
    /// Whether the user was told that it does not.
    said_why: AtomicBool,
    /// Threads whose last call a signal came upon while it was to be changed.
    disturbed: Mutex<HashSet<u32>>,
    traced: Claims,
}

const SIGTERM: i32 = 15;

impl Judge {
    pub(crate) fn new(
        options: &Options,
        listener: Arc<Listener>,
        face: Arc<OwnedFd>,
        command: u32,
        state: Shared,
    ) -> Self {
        let (disturbed, traced, said_why) = Default::default();
        let (options, looks) = (options.clone(), families::proc_is_ours());
        Self { options, listener, face, command, state, looks, said_why, disturbed, traced }
    }

    /// Answers `waiting`. What has to be done before that, and may take long, is done only if
    /// the calling thread `may_wait`.
    pub(crate) fn judge(&self, targets: &mut Targets, waiting: &Waiting, may_wait: bool) -> Judged {
        let decision = match decide(targets, waiting, &self.options) {
            Decision::Hold(_) | Decision::Rewrite(_) | Decision::Pass if !self.looks => {
                if !self.said_why.swap(true, Relaxed) {
                    self.tell(Notice::ForeignProc);
                }
                Decision::Pass
            }
            decision => decision,
        };
        if targets.take_missed() {
            return Judged::Patience;
        }
        let Reply { answer, counted } = match self.consider(waiting, decision, may_wait) {
            Ok(reply) => reply,
            Err(judged) => return judged,
        };
        // An error means that the caller is gone; nothing was done in its name.
        let reached = self.listener.answer(waiting.notification.id, answer).unwrap_or(false);
        if let (false, Some((end, program))) = (reached, counted) {
            // Before Linux 5.19 a signal may have come upon it, and it is made again.
            let name = waiting.call.name();
            self.state.lock().accounts.take_back(name, program.as_deref(), end);
        }
        Judged::Done
    }

    /// Keeps the command's first thread from being traced as long as it is held;
    /// `None` while it is.
    pub(crate) fn untraced(&self) -> Option<Claim<'_>> {
        self.traced.take(self.command)
    }

    /// The reply.
    ///
    /// # Errors
    /// How far we came, when there is none to give.
    fn consider(
        &self,
        waiting: &Waiting,
        decision: Decision,
        may_wait: bool,
    ) -> Result<Reply, Judged> {
        Ok(match decision {
            Decision::Hold(devices) => return self.hold(waiting, &devices, may_wait),
            Decision::Rewrite(change) => return self.change(waiting, &change, may_wait),
            Decision::Pass => self.count(waiting, End::Passed, Answer::Continue),
            Decision::Refuse(errno) => self.count(waiting, End::Refused, Answer::Errno(errno)),
            Decision::Ignore => Answer::Continue.into(),
            Decision::Handshake => Answer::Value(HANDSHAKE_VALUE).into(),
            Decision::Unmount(mount) => {
                let unmount = |mount| self.state.lock().unmount(mount);
                if let Some(depart) = mount.and_then(unmount) {
                    depart();
                }
                Answer::Continue.into()
            }
            Decision::GainRights(path) => {
                if self.state.lock().rights_told.insert(Gain::of(&path)) {
                    self.tell(Notice::NoRightsGained(path));
                }
                Answer::Continue.into()
            }
        })
    }

    fn hold(
        &self,
        waiting: &Waiting,
        devices: &[DeviceId],
        may_wait: bool,
    ) -> Result<Reply, Judged> {
        let program = self.program(waiting);
        let count = |state: &mut State| {
            state.accounts.count(waiting.call.name(), program.as_deref(), End::Held);
        };
        Ok(match self.admit(waiting, devices, may_wait, count) {
            Admitted::Held { late } => match late.then(|| not_held(waiting)).flatten() {
                None => Reply { answer: Answer::Value(0), counted: Some((End::Held, program)) },
                Some(answer) => {
                    let name = waiting.call.name();
                    self.state.lock().accounts.take_back(name, program.as_deref(), End::Held);
                    self.count(waiting, End::Passed, answer)
                }
            },
            Admitted::Passed => self.count(waiting, End::Passed, Answer::Continue),
            Admitted::Over => Answer::Continue.into(),
            Admitted::Patience => return Err(Judged::Patience),
        })
    }

    fn change(&self, waiting: &Waiting, change: &Change, may_wait: bool) -> Result<Reply, Judged> {
        match self.admit(waiting, &change.devices, may_wait, |_| {}) {
            Admitted::Held { late } => {
                // A file that is about to be opened has no error of before.
                match (late && !change.opens).then(|| not_held(waiting)).flatten() {
                    None => Err(self.rewrite(waiting, change, self.program(waiting))),
                    Some(answer) => Ok(self.count(waiting, End::Passed, answer)),
                }
            }
            Admitted::Passed => Ok(self.count(waiting, End::Passed, Answer::Continue)),
            Admitted::Over => Ok(Answer::Continue.into()),
            Admitted::Patience => Err(Judged::Patience),
        }
    }

    fn admit(
        &self,
        waiting: &Waiting,
        devices: &[DeviceId],
        may_wait: bool,
        note: impl FnOnce(&mut State),
    ) -> Admitted {
        let fd = synconce_filter::args::descriptor(waiting.notification.args[0]);
        let via = Via { thread: waiting.notification.thread, fd };
        self.state.admit(devices, via, may_wait, note, |work| self.begin(work))
    }

    /// Has `work` done by a thread of its own: the calling process may be the server that the
    /// work will wait for, and then its call has to go on.
    fn begin(&self, work: Work) {
        let (state, face, command) = (self.state.clone(), Arc::clone(&self.face), self.command);
        let conclude = move |done: Done| {
            if let Done::Marked(Ok(path)) = &done {
                // Before a call is held: without the supervisor only the face can tell.
                let _ = send(&*face, &Message::Marked { path: path.clone() });
            }
            match state.conclude(done) {
                Ok(news) => {
                    news.into_iter().for_each(|notice| offer(&*face, &Message::Notice(notice)));
                }
                // The command cannot be held as was asked, so it shall not go on.
                Err(_) => drop(synconce_sys::signals::send(command, SIGTERM)),
            }
        };
        work.start(conclude);
    }

    fn rewrite(&self, waiting: &Waiting, change: &Change, program: Option<String>) -> Judged {
        let (thread, id) = (waiting.notification.thread, waiting.notification.id);
        let claim = self.traced.wait_for(thread);
        let shielded = self.disturbed().remove(&thread);
        let changing = || Changing { thread, call: waiting.call, program: program.clone() };
        let begin = || self.state.lock().begin(id, changing());
        let rewrite =
            Rewrite { listener: &self.listener, waiting, change, shielded, command: self.command };
        let rewritten = match &claim {
            Some(claim) => rewrite.perform(claim, &begin),
            None => rewrite.pass(),
        };
        if matches!(rewritten, Rewritten::Disturbed | Rewritten::Left) {
            self.disturbed().insert(thread);
        }
        // The caller goes on already: its file may be one of a server that waits for us.
        let opened = match rewritten {
            Rewritten::Done(fd) if change.opens => unsynced(thread, fd),
            _ => None,
        };
        // In one step with its count: a close in between would count it as well.
        let mut state = self.state.lock();
        state.changing.remove(&id);
        let end = match rewritten {
            Rewritten::Done(value) if value >= 0 => End::Held,
            Rewritten::Passed => End::Passed,
            Rewritten::Left => return Judged::Left,
            _ => return Judged::Done,
        };
        state.accounts.count(waiting.call.name(), program.as_deref(), end);
        state.unsynced.extend(opened);
        Judged::Done
    }

    /// Counts a call before it is answered: once it is, the run may end.
    fn count(&self, waiting: &Waiting, end: End, answer: Answer) -> Reply {
        let program = self.program(waiting);
        self.state.lock().accounts.count(waiting.call.name(), program.as_deref(), end);
        Reply { answer, counted: Some((end, program)) }
    }

    fn disturbed(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.disturbed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn program(&self, waiting: &Waiting) -> Option<String> {
        self.options.by_program.then(|| waiting.program()).flatten()
    }

    fn tell(&self, notice: Notice) {
        offer(&*self.face, &Message::Notice(notice));
    }
}

/// The answer to a call on a file system that was pinned late, if the call cannot be held: the
/// error of a write-back that the caller's descriptor has not reported yet. The look reports
/// the error, so no later call would.
fn not_held(waiting: &Waiting) -> Option<Answer> {
    if mutant::is("late-look-skipped") {
        return None;
    }
    let one_file =
        [Call::Fsync, Call::Fdatasync, Call::SyncFileRange, Call::Preadv2, Call::Pwritev2];
    let file = one_file.contains(&waiting.call).then(|| callers_file(waiting)).flatten();
    // The kernel reports errors of a mapping, of a whole file system, or of aio requests.
    let Some(file) = file else { return Some(Answer::Continue) };
    let error = write_back::error_of(file.as_fd()).err()?;
    Some(error.raw_os_error().map_or(Answer::Continue, Answer::Errno))
}

/// A duplicate of the descriptor that the call is about (`pidfd_getfd(2)`, Linux 5.6). None
/// before Linux 6.9 for another thread than the first of its process, which may have
/// descriptors of its own (`unshare(2)`, CLONE_FILES).
fn callers_file(waiting: &Waiting) -> Option<OwnedFd> {
    let thread = Pid::from_raw(waiting.notification.thread.cast_signed())?;
    let of_a_thread = PidfdFlags::from_bits_retain(PIDFD_THREAD);
    let thread = pidfd_open(thread, of_a_thread)
        .or_else(|_| pidfd_open(thread, PidfdFlags::empty()))
        .ok()?;
    let fd = synconce_filter::args::descriptor(waiting.notification.args[0]);
    pidfd_getfd(thread, fd, PidfdGetfdFlags::empty()).ok()
}

fn unsynced(thread: u32, fd: i64) -> Option<Unsynced> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(format!("/proc/{thread}/fd/{fd}")).ok()?;
    Some(Unsynced { device: meta.dev(), inode: meta.ino() })
}
