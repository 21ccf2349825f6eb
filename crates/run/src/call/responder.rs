//! Answers one call: decides, makes the marker durable, holds, counts.

mod callers_file;
mod mounts;
mod request;

pub(crate) use self::callers_file::callers_file;

use crate::call::fd_info::FdInfo;
use crate::call::lookups::ProcLookups;
use crate::call::policy::{CallChange, Decision, PendingCall, decide};
use crate::call::rewrite::{Rewrite, Rewritten};
use crate::call::rules::{Blocking, MayBlock};
use crate::call::tracee_locks::{TraceeLock, TraceeLocks};
use crate::call::workers::After;
use crate::commit::active::{Done, Via, Work};
use crate::commit::checkpoints;
use crate::commit::state::{Admission, CallToHold, Changing, SharedState, State, Unsynced};
use crate::options::RunOptions;
use crate::process::process_tree;
use crate::process::real::RealTrees;
use crate::report::accounts::{End, PassReason};
use crate::report::protocol::{Message, Notice, send, try_send};
use crate::request::held::HANDSHAKE_VALUE;
use crate::watch::Watch;
use rustix::process::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use synconce_durable::mutant;
use synconce_filter::CallProperty;
use synconce_probe::mounts::DeviceId;
use synconce_sys::notify::{Answer, Listener, Notification};
use synconce_sys::{signals, write_back};

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
    watch: Option<Arc<Watch>>,
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
        let watch = Watch::start(&options).map(Arc::new);
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
    pub(crate) fn watch(&self) -> Option<&Arc<Watch>> {
        self.watch.as_ref()
    }

    /// Decides about `pending`, and answers it. Work that has to be done before, and may take long,
    /// is done only if `blocking` is allowed.
    ///
    /// # Errors
    /// The call is not answered: a look-up or work may take long.
    pub(crate) fn answer(
        &self,
        fd_info: &mut FdInfo,
        pending: &PendingCall,
        blocking: Blocking,
    ) -> Result<After, MayBlock> {
        let mut lookups = ProcLookups {
            thread: pending.notification.thread,
            fd_info,
            real: &self.real,
            unmounters: &self.unmounters,
            waits: &|| self.listener.is_valid(pending.notification.id),
        };
        match &self.watch {
            Some(_) if blocking == Blocking::Refused => return Err(MayBlock),
            Some(watch) => watch.answer(&self.listener, &mut lookups, pending, None)?,
            None => {
                let decision = decide(pending, &mut lookups, &self.options)?;
                return self.act(pending, decision, blocking);
            }
        }
        Ok(After::Idle)
    }

    /// Locks the command's first thread against being traced, until the returned lock is
    /// dropped. Returns `None` while the thread is traced.
    pub(crate) fn untraced(&self) -> Option<TraceeLock<'_>> {
        self.traced.take(self.command)
    }

    /// Answers `pending` as was decided.
    fn act(
        &self,
        pending: &PendingCall,
        decision: Decision,
        blocking: Blocking,
    ) -> Result<After, MayBlock> {
        match decision {
            Decision::Hold(devices) => self.hold(pending, &devices, End::Held, blocking)?,
            Decision::HoldUnseen => self.hold(pending, &[], End::Unseen, blocking)?,
            Decision::Rewrite(change) => return self.change(pending, &change, blocking),
            Decision::Freeze => self.freeze(pending, blocking)?,
            Decision::Detach => self.detach(pending, blocking)?,
            Decision::FlushDevice => {
                self.real.add_reader(pending.notification.thread);
                self.pass(pending, PassReason::NeverHeld);
            }
            Decision::Pass(reason) => self.pass(pending, reason),
            Decision::PassUnseen => {
                self.state.lock().notes.passed_unseen = true;
                self.pass(pending, PassReason::Unseen);
            }
            Decision::Refuse(errno) => {
                self.count_and_send(pending, End::Refused, Answer::Errno(errno));
            }
            Decision::Ignore => self.leave(pending),
            Decision::Handshake => {
                self.send(pending, Answer::Value(HANDSHAKE_VALUE));
            }
            Decision::Request(request) => {
                let answer = self.handle_request(pending, request);
                self.send(pending, answer);
            }
            Decision::OwnFilter(filter) => {
                // A foreign /proc has the name of another process.
                if self.proc_is_ours && self.state.lock().own_filters.insert(filter) {
                    let program = pending.program().unwrap_or_default();
                    self.notify(Notice::OwnFilter(filter, program));
                }
                self.leave(pending);
            }
            Decision::Unmount(unmounting) => {
                self.unmount(pending, unmounting);
                self.leave(pending);
            }
            Decision::EndMachine => {
                // The ids of a foreign /proc are those of other processes.
                if !self.proc_is_ours || process_tree::may_end_machine(pending.notification.thread)
                {
                    checkpoints::make_before_end_of_machine(&self.state, &self.frontend);
                }
                self.leave(pending);
            }
        }
        Ok(After::Idle)
    }

    fn hold(
        &self,
        pending: &PendingCall,
        devices: &[DeviceId],
        end: End,
        blocking: Blocking,
    ) -> Result<(), MayBlock> {
        let (program, thread) = (self.program(pending), pending.notification.thread);
        let (program, device) = (program.as_deref(), devices.first().copied());
        let count = |state: &mut State| {
            state.notes.accounts.count(pending.call.name(), program, end);
            if end != End::Unseen {
                state.note_held(thread, pending.call, device);
            } else if let Some(active) = state.run() {
                active.scope.add_everything();
            }
        };
        let Some(late) = self.admit_or_pass(pending, devices, blocking, count)? else {
            return Ok(());
        };
        let take_back = || self.state.lock().take_back(pending.call, device, program, end);
        if let Some((answer, why)) = late.then(|| not_held(pending)).flatten() {
            take_back();
            self.count_and_send(pending, End::Passed(why), answer);
        } else if !self.send(pending, Answer::Value(0)) {
            take_back();
        }
        Ok(())
    }

    fn change(
        &self,
        pending: &PendingCall,
        change: &CallChange,
        blocking: Blocking,
    ) -> Result<After, MayBlock> {
        let Some(late) = self.admit_or_pass(pending, &change.devices, blocking, |_| {})? else {
            return Ok(After::Idle);
        };
        // A file that is about to be opened has no earlier error.
        let Some((answer, why)) = (late && !change.opens).then(|| not_held(pending)).flatten()
        else {
            return Ok(self.rewrite(pending, change, self.program(pending)));
        };
        self.count_and_send(pending, End::Passed(why), answer);
        Ok(After::Idle)
    }

    /// Makes the commit cover a call on `devices`, and notes the call by `note`. Returns whether a
    /// file system was pinned late (see [`Admission::Held`]). A call that may not be held passes;
    /// then returns `None`.
    fn admit_or_pass(
        &self,
        pending: &PendingCall,
        devices: &[DeviceId],
        blocking: Blocking,
        note: impl FnOnce(&mut State),
    ) -> Result<Option<bool>, MayBlock> {
        let grant = |state: &mut State| {
            let late = state.run().is_some_and(|active| active.cover_call(devices));
            note(state);
            Admission::Held { late }
        };
        match self.admit(pending, devices, blocking, grant)? {
            Admission::Held { late } => return Ok(Some(late)),
            Admission::Passed(reason) => self.pass(pending, reason),
            Admission::Over => self.leave(pending),
        }
        Ok(None)
    }

    fn admit(
        &self,
        pending: &PendingCall,
        devices: &[DeviceId],
        blocking: Blocking,
        grant: impl FnOnce(&mut State) -> Admission,
    ) -> Result<Admission, MayBlock> {
        let Notification { id, thread, args, .. } = pending.notification;
        let call = CallToHold {
            devices,
            via: Via { thread, fd: synconce_filter::args::descriptor(args[0]) },
            may_wait: blocking == Blocking::Allowed,
            call_waits: &|| self.listener.is_valid(id),
            start_work: &|work| self.start_work(work),
        };
        self.state.admit(&call, grant)
    }

    /// Starts `work` on a new thread. The calling process may be the server that the work will
    /// wait for, and then its call has to continue.
    fn start_work(&self, work: Work) {
        let (state, frontend, command) =
            (self.state.clone(), Arc::clone(&self.frontend), self.command);
        let or_real = self.options.or_real;
        let conclude = move |done: Done| {
            if let Done::Marked(Ok(path)) = &done {
                // Sent before a call is held: if the supervisor is killed, only the frontend
                // can report the marker.
                let path = path.clone().map(Into::into);
                let _ = send(&*frontend, &Message::Marked { path });
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
    ) -> After {
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
            Rewritten::Left => return After::End,
            _ => return After::Idle,
        };
        state.notes.accounts.count(pending.call.name(), program.as_deref(), end);
        if end == End::Held {
            state.note_held(thread, pending.call, change.devices.first().copied());
        }
        state.notes.unsynced.extend(opened);
        After::Idle
    }

    fn pass(&self, pending: &PendingCall, reason: PassReason) {
        self.count_and_send(pending, End::Passed(reason), Answer::Continue);
    }

    /// Counts `pending`, and then answers it: after the answer the run may end.
    fn count_and_send(&self, pending: &PendingCall, end: End, answer: Answer) {
        let program = self.program(pending);
        self.state.lock().notes.accounts.count(pending.call.name(), program.as_deref(), end);
        if !self.send(pending, answer) {
            self.state.lock().take_back(pending.call, None, program.as_deref(), end);
        }
    }

    /// Leaves `pending` to the kernel, uncounted.
    fn leave(&self, pending: &PendingCall) {
        self.send(pending, Answer::Continue);
    }

    /// Answers `pending`. Returns `false` if the caller has exited, or a signal or a freezer has
    /// interrupted the call; then the caller repeats it.
    fn send(&self, pending: &PendingCall, answer: Answer) -> bool {
        self.listener.answer(pending.notification.id, answer).unwrap_or(false)
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

/// Returns the answer to a call on a file system that was pinned late, and why, if the call cannot
/// be held: the write-back error that the caller's descriptor has not reported yet. This check
/// reports the error and thereby clears it, so the answer must carry it.
fn not_held(pending: &PendingCall) -> Option<(Answer, PassReason)> {
    if mutant::is("late-look-skipped") {
        return None;
    }
    let has_one_file = pending.call.is(CallProperty::OneFile);
    let file = has_one_file.then(|| callers_file(pending).ok()).flatten();
    // Left to the kernel: it reports errors of a mapping, of a whole file system, or of aio
    // requests.
    let Some(file) = file else { return Some((Answer::Continue, PassReason::ErrorUnknown)) };
    let error = write_back::error_of(file.as_fd()).err()?;
    let answer = error.raw_os_error().map_or(Answer::Continue, Answer::Errno);
    Some((answer, PassReason::WriteError))
}

fn unsynced(thread: u32, fd: i64) -> Option<Unsynced> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(format!("/proc/{thread}/fd/{fd}")).ok()?;
    Some(Unsynced { device: meta.dev(), inode: meta.ino() })
}

#[cfg(test)]
mod tests;
