//! Answers one call: decides, makes the marker durable, holds, counts.

mod callers_file;
mod mounts;
mod request;

pub(crate) use self::callers_file::callers_file;

use crate::accounts::{End, PassReason};
use crate::active::{Active, Admission, Done, Via, Work};
use crate::fd_info::FdInfo;
use crate::held::HANDSHAKE_VALUE;
use crate::lookups::ProcLookups;
use crate::options::RunOptions;
use crate::policy::{CallChange, Decision, PendingCall, decide};
use crate::process_tree;
use crate::protocol::{Message, Notice, send, try_send};
use crate::real::RealTrees;
use crate::rewrite::{Rewrite, Rewritten};
use crate::state::{Admitted, Changing, SharedState, State, Unsynced};
use crate::tracee_locks::{TraceeLock, TraceeLocks};
use crate::watch::Watch;
use rustix::process::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use synconce_durable::mutant;
use synconce_filter::Call;
use synconce_probe::mounts::DeviceId;
use synconce_sys::notify::{Answer, Listener};
use synconce_sys::{signals, write_back};

/// How far the handling of a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// The call is answered, or no longer waits for an answer.
    Done,
    /// Undecided: retry on a worker thread, where lookups may block.
    MayBlock,
    /// The call is answered, and the calling thread must exit to detach from the caller.
    AbandonThread,
}

/// The answer to a call, and how the call was counted.
struct Reply {
    answer: Answer,
    /// The end of the call, and the program's name.
    counted: Option<(End, Option<String>)>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self { answer, counted: None }
    }
}

/// Answers calls, from any thread.
pub(crate) struct Responder {
    options: RunOptions,
    listener: Arc<Listener>,
    frontend: Arc<OwnedFd>,
    command: u32,
    state: SharedState,
    /// Whether the ids of callers are those of /proc.
    proc_is_ours: bool,
    traced: TraceeLocks,
    /// Threads whose unmount is looked up.
    unmounters: TraceeLocks,
    real: RealTrees,
    /// Times the calls, in a run that holds nothing.
    watch: Option<Watch>,
}

impl Responder {
    pub(crate) fn new(
        options: &RunOptions,
        listener: Arc<Listener>,
        frontend: Arc<OwnedFd>,
        command: u32,
        state: SharedState,
    ) -> Self {
        let (options, proc_is_ours) = (options.clone(), process_tree::proc_is_ours());
        let (traced, unmounters, real) = Default::default();
        let watch = Watch::of(&options);
        Self {
            options,
            listener,
            frontend,
            command,
            state,
            proc_is_ours,
            traced,
            unmounters,
            real,
            watch,
        }
    }

    /// Returns what times the calls, in a run that holds nothing.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// Answers `pending`. Work that has to be done before, and may take long, is done only if
    /// the calling thread `may_wait`.
    pub(crate) fn answer(
        &self,
        fd_info: &mut FdInfo,
        pending: &PendingCall,
        may_wait: bool,
    ) -> Handled {
        let mut lookups = ProcLookups {
            thread: pending.notification.thread,
            fd_info,
            real: &self.real,
            unmounters: &self.unmounters,
            waits: &|| self.listener.is_valid(pending.notification.id),
        };
        if let Some(watch) = &self.watch {
            return if may_wait {
                let answered = watch.answer(&self.listener, &mut lookups, pending);
                answered.map_or(Handled::MayBlock, |()| Handled::Done)
            } else {
                Handled::MayBlock
            };
        }
        let Ok(decision) = decide(pending, &mut lookups, &self.options) else {
            return Handled::MayBlock;
        };
        let device = match &decision {
            Decision::Hold(devices) => devices.first().copied(),
            _ => None,
        };
        let Reply { answer, counted } = match self.consider(pending, decision, may_wait) {
            Ok(reply) => reply,
            Err(handled) => return handled,
        };
        // An error means that the caller has exited; nothing was done on its behalf.
        let reached = self.listener.answer(pending.notification.id, answer).unwrap_or(false);
        if let (false, Some((end, program))) = (reached, counted) {
            // A signal or a freezer has interrupted the call; the caller repeats it.
            self.state.lock().take_back(pending.call, device, program.as_deref(), end);
        }
        Handled::Done
    }

    /// Locks the command's first thread against being traced, until the returned lock is
    /// dropped. Returns `None` while the thread is traced.
    pub(crate) fn untraced(&self) -> Option<TraceeLock<'_>> {
        self.traced.take(self.command)
    }

    /// Returns the reply.
    ///
    /// # Errors
    /// How far the handling came, if there is no reply.
    fn consider(
        &self,
        pending: &PendingCall,
        decision: Decision,
        may_wait: bool,
    ) -> Result<Reply, Handled> {
        Ok(match decision {
            Decision::Hold(devices) => return self.hold(pending, &devices, End::Held, may_wait),
            Decision::HoldUnseen => return self.hold(pending, &[], End::Unseen, may_wait),
            Decision::PassUnseen => {
                self.state.lock().passed_unseen = true;
                self.count(pending, End::Passed(PassReason::Unseen), Answer::Continue)
            }
            Decision::Rewrite(change) => return self.change(pending, &change, may_wait),
            Decision::Request(request) => self.handle_request(pending, request),
            Decision::Freeze => return self.freeze(pending, may_wait),
            Decision::Pass(reason) => self.count(pending, End::Passed(reason), Answer::Continue),
            Decision::Refuse(errno) => self.count(pending, End::Refused, Answer::Errno(errno)),
            Decision::Ignore => Answer::Continue.into(),
            Decision::Handshake => Answer::Value(HANDSHAKE_VALUE).into(),
            Decision::OwnFilter(filter) => {
                if self.state.lock().own_filters.insert(filter) {
                    let program = pending.program().unwrap_or_default();
                    self.notify(Notice::OwnFilter(filter, program));
                }
                Answer::Continue.into()
            }
            Decision::Unmount(unmounting) => self.unmount(pending, unmounting).into(),
        })
    }

    fn hold(
        &self,
        pending: &PendingCall,
        devices: &[DeviceId],
        end: End,
        may_wait: bool,
    ) -> Result<Reply, Handled> {
        let (program, thread) = (self.program(pending), pending.notification.thread);
        let count = |state: &mut State| {
            state.accounts.count(pending.call.name(), program.as_deref(), end);
            if end != End::Unseen {
                state.note_held(thread, pending.call, devices.first().copied());
            } else if let Some(active) = state.run() {
                active.cover_everything();
            }
        };
        Ok(match self.admit(pending, devices, may_wait, count) {
            Admitted::Held { late } => match late.then(|| not_held(pending)).flatten() {
                None => Reply { answer: Answer::Value(0), counted: Some((end, program)) },
                Some(answer) => {
                    let device = devices.first().copied();
                    self.state.lock().take_back(pending.call, device, program.as_deref(), end);
                    self.count(pending, End::Passed(PassReason::WriteError), answer)
                }
            },
            Admitted::Passed(reason) => self.count(pending, End::Passed(reason), Answer::Continue),
            Admitted::Over => Answer::Continue.into(),
            Admitted::Gone => return Err(Handled::Done),
            Admitted::Patience => return Err(Handled::MayBlock),
        })
    }

    fn change(
        &self,
        pending: &PendingCall,
        change: &CallChange,
        may_wait: bool,
    ) -> Result<Reply, Handled> {
        match self.admit(pending, &change.devices, may_wait, |_| {}) {
            Admitted::Held { late } => {
                // A file that is about to be opened has no earlier error.
                match (late && !change.opens).then(|| not_held(pending)).flatten() {
                    None => Err(self.rewrite(pending, change, self.program(pending))),
                    Some(answer) => {
                        Ok(self.count(pending, End::Passed(PassReason::WriteError), answer))
                    }
                }
            }
            Admitted::Passed(reason) => {
                Ok(self.count(pending, End::Passed(reason), Answer::Continue))
            }
            Admitted::Over => Ok(Answer::Continue.into()),
            Admitted::Gone => Err(Handled::Done),
            Admitted::Patience => Err(Handled::MayBlock),
        }
    }

    fn admit(
        &self,
        pending: &PendingCall,
        devices: &[DeviceId],
        may_wait: bool,
        note: impl FnOnce(&mut State),
    ) -> Admitted {
        let fd = synconce_filter::args::descriptor(pending.notification.args[0]);
        let via = Via { thread: pending.notification.thread, fd };
        self.ask(pending, |active| active.admit(devices, via, may_wait), may_wait, note)
    }

    fn ask(
        &self,
        pending: &PendingCall,
        ask: impl Fn(&mut Active) -> Admission,
        may_wait: bool,
        note: impl FnOnce(&mut State),
    ) -> Admitted {
        let (thread, id) = (pending.notification.thread, pending.notification.id);
        let call_waits = || self.listener.is_valid(id);
        self.state.admit(ask, thread, may_wait, note, |work| self.begin(work), call_waits)
    }

    /// Starts `work` on a new thread. The calling process may be the server that the work will
    /// wait for, and then its call has to continue.
    fn begin(&self, work: Work) {
        let (state, frontend, command) =
            (self.state.clone(), Arc::clone(&self.frontend), self.command);
        let or_real = self.options.or_real;
        let conclude = move |done: Done| {
            if let Done::Marked(Ok(path)) = &done {
                // Sent before a call is held: if the supervisor is killed, only the frontend
                // can report the marker.
                let _ = send(&*frontend, &Message::Marked { path: path.clone() });
            }
            match state.conclude(done) {
                Ok(None) => {}
                Ok(Some(notice)) => try_send(&*frontend, &Message::Notice(notice)),
                // No call was held before, and none will be.
                Err(error) if or_real => {
                    let notice = Notice::RealSyncs(error.before_any_hold());
                    let _ = send(&*frontend, &Message::Notice(notice));
                }
                // The command cannot be held as was asked, so it is terminated.
                Err(_) => drop(signals::send(command, Signal::TERM.as_raw())),
            }
        };
        work.start(conclude);
    }

    fn rewrite(
        &self,
        pending: &PendingCall,
        change: &CallChange,
        program: Option<String>,
    ) -> Handled {
        let (thread, id) = (pending.notification.thread, pending.notification.id);
        let claim = self.traced.wait_for(thread);
        let changing = || Changing { thread, call: pending.call, program: program.clone() };
        let begin = || self.state.lock().begin(id, changing());
        let rewrite = Rewrite { listener: &self.listener, pending, change, command: self.command };
        let rewritten = match &claim {
            Some(claim) => rewrite.perform(claim, &begin),
            None => rewrite.pass(),
        };
        // The caller is running already: the file's server may be part of the run and wait for
        // an answer.
        let opened = match rewritten {
            Rewritten::Done(fd) if change.opens => unsynced(thread, fd),
            _ => None,
        };
        // Under one lock with the count: `close` in between would count the call a second
        // time.
        let mut state = self.state.lock();
        state.changing.remove(&id);
        let end = match rewritten {
            Rewritten::Done(value) if value >= 0 => End::Held,
            Rewritten::Passed => End::Passed(PassReason::Traced),
            Rewritten::Left => return Handled::AbandonThread,
            _ => return Handled::Done,
        };
        state.accounts.count(pending.call.name(), program.as_deref(), end);
        if end == End::Held {
            state.note_held(thread, pending.call, change.devices.first().copied());
        }
        state.unsynced.extend(opened);
        Handled::Done
    }

    /// Counts a call before it is answered: after the answer the run may end.
    fn count(&self, pending: &PendingCall, end: End, answer: Answer) -> Reply {
        let program = self.program(pending);
        self.state.lock().accounts.count(pending.call.name(), program.as_deref(), end);
        Reply { answer, counted: Some((end, program)) }
    }

    fn program(&self, pending: &PendingCall) -> Option<String> {
        // The ids of a foreign /proc are those of other processes.
        let may_look = self.options.by_program && self.proc_is_ours;
        may_look.then(|| pending.program()).flatten()
    }

    fn notify(&self, notice: Notice) {
        try_send(&*self.frontend, &Message::Notice(notice));
    }
}

/// Returns the answer to a call on a file system that was pinned late, if the call cannot be
/// held: the write-back error that the caller's descriptor has not reported yet. This check
/// reports the error and thereby clears it, so the answer must carry it.
fn not_held(pending: &PendingCall) -> Option<Answer> {
    if mutant::is("late-look-skipped") {
        return None;
    }
    let one_file =
        [Call::Fsync, Call::Fdatasync, Call::SyncFileRange, Call::Preadv2, Call::Pwritev2];
    let file = one_file.contains(&pending.call).then(|| callers_file(pending).ok()).flatten();
    // Left to the kernel: it reports errors of a mapping, of a whole file system, or of aio
    // requests.
    let Some(file) = file else { return Some(Answer::Continue) };
    let error = write_back::error_of(file.as_fd()).err()?;
    Some(error.raw_os_error().map_or(Answer::Continue, Answer::Errno))
}

fn unsynced(thread: u32, fd: i64) -> Option<Unsynced> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(format!("/proc/{thread}/fd/{fd}")).ok()?;
    Some(Unsynced { device: meta.dev(), inode: meta.ino() })
}
