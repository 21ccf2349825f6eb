//! The order of a run, in the supervisor's process: mark, launch, supervise, release, commit,
//! clear, serve.
//!
//! - The marker is durable before the first call is held. In a sealed run it is durable before
//!   the command starts, because no supervisor sees the first call.
//! - Holding ends *before* the commit begins: a call that is held after its file system was
//!   synced would be lost.
//! - The marker is cleared only after the sync of every file system succeeded.

pub(crate) mod launch;
mod near;
mod notices;
mod prepare;

use crate::call::rules::Rules;
use crate::call::serve::{is_used, serve};
use crate::commit::active::Active;
use crate::commit::checkpoints;
use crate::commit::state::SharedState;
use crate::options::RunOptions;
use crate::process::privileges::{self, Gain};
use crate::process::process_tree::{self, Process};
use crate::process::{environment, limits};
use crate::report::accounts::Accounts;
use crate::report::balance::{Balance, HeldSyncs};
use crate::report::counts;
use crate::report::protocol::{
    CommitReport, Ending, Message, Notice, Summary, progress_sender, send,
};
use crate::report::run_error::RunError;
use crate::request::presence::Presence;
use crate::request::runfile::Phase;
use crate::supervisor::{Stopped, Supervisor};
use crate::watch::steps::{StepSocket, Steps};
use launch::{launch_held, would_gain_privileges};
use notices::Notices;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{Shutdown, shutdown};
use rustix::process::Signal;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use synconce_durable::mutant;
use synconce_sys::handover::{Handover, MarkerStep, Takeover};
use synconce_sys::notify::Listener;
use synconce_sys::process::{self, ChildChange, WaitFor, Whose};
use synconce_sys::signals::{SignalReader, SignalSet, send as kill};

/// The process name; equal to `process_tree::SUPERVISOR`.
const NAME_FOR_KERNEL: &CStr = c"synconce-hold";

/// Supervises a run to its end and serves its survivors. Returns an exit code, which no
/// process reads. `mask` is the signal mask for the command.
pub(crate) fn supervise(
    options: &RunOptions,
    frontend: OwnedFd,
    mask: SignalSet,
    takeover: Takeover,
) -> i32 {
    process::set_name(NAME_FOR_KERNEL);
    let handover = Arc::clone(&takeover.handover);
    match start(options, &frontend, mask, takeover) {
        Ok(started) => {
            started.go_on(options, frontend, handover);
            0
        }
        Err(error) => {
            // If the frontend has exited, the error cannot be reported.
            let _ = send(&frontend, &Message::Failed(error));
            process::FAILED
        }
    }
}

/// A run whose command has started.
struct Started {
    active: Active,
    listener: Option<Arc<Listener>>,
    signals: SignalReader,
    command: u32,
    /// Programs that gain no privileges.
    privileges: Option<privileges::PrivilegeWatch>,
    /// The kind of privileges that the command itself does not gain, if a notice was printed.
    gain: Option<Gain>,
    /// The socket that other processes connect to until the command ends.
    presence: Option<Presence>,
    /// The socket for steps of image builds, or why there is none.
    steps: Option<Result<StepSocket, String>>,
    /// `--only` and `--except`.
    rules: Option<Arc<Rules>>,
}

/// Mark and launch.
fn start(
    options: &RunOptions,
    frontend: &OwnedFd,
    mask: SignalSet,
    takeover: Takeover,
) -> Result<Started, RunError> {
    let set_up = |act: &str, error: std::io::Error| RunError::set_up(act, &error);
    process::adopt_orphans().map_err(|error| set_up("cannot become a subreaper", error))?;
    let children = SignalSet::from_numbers(&[Signal::CHILD.as_raw()]);
    children.block();
    let signals =
        SignalReader::new(&children).map_err(|error| set_up("cannot read signals", error))?;
    let rules = Rules::resolve(options).map_err(RunError::Rule)?.map(Arc::new);
    let mut active = prepare::prepare(options, &takeover.handover)?;
    // Without a socket no process outside the run can ask for a checkpoint.
    let presence =
        if options.record.is_some() { None } else { Presence::new(active.markers.run_id()).ok() };
    let steps = options.watch_steps.then(StepSocket::open).flatten();
    let privileges = privileges::PrivilegeWatch::begin();
    let launched = launch_held(options, &mut active, mask, &takeover, frontend, presence.as_ref());
    let launched = launched.inspect_err(|_| {
        // No call was held. A marker that cannot be removed causes a false warning, not a
        // missing one.
        let _ = active.markers.clear();
    })?;
    let no_privileges =
        launched.no_new_privs.then(|| would_gain_privileges(&launched.executed)).flatten();
    process::leave_session();
    limits::raise();
    let listener = launched.listener.map(|listener| Arc::new(listener.noting(takeover.handover)));
    if let Some(listener) = &listener {
        listener.wake_on_same_cpu();
    }
    // The supervisor's loop detects a frontend that has exited.
    let _ = send(frontend, &Message::Started { pid: launched.pid });
    if let Some(notice) = active.earlier_notice() {
        let _ = send(frontend, &Message::Notice(notice));
    }
    if listener.is_none()
        && let Some(notice) = active.marker_notice()
    {
        let _ = send(frontend, &Message::Notice(notice));
    }
    if listener.is_none() && !options.sealed {
        let _ = send(frontend, &Message::Notice(Notice::ForeignListener));
    }
    let gain = no_privileges.as_deref().map(Gain::read);
    if let Some(path) = no_privileges {
        let _ = send(frontend, &Message::Notice(Notice::NoPrivilegesGained(path)));
    }
    let command = launched.pid;
    Ok(Started { active, listener, signals, command, privileges, gain, presence, steps, rules })
}

impl Started {
    fn go_on(self, options: &RunOptions, frontend: OwnedFd, handover: Arc<Handover>) {
        let frontend = Arc::new(frontend);
        let Self { active, listener, signals, command, privileges, gain, presence, steps, rules } =
            self;
        let state = SharedState::new(active);
        let supervisor = Supervisor::new(
            options,
            listener.clone(),
            Arc::clone(&frontend),
            &signals,
            command,
            presence,
            state.clone(),
        );
        let supervisor = supervisor.following(rules);
        let steps = Steps::begin(steps, supervisor.watch());
        if let Some(interval) = options.commit_every {
            checkpoints::make_every(interval, state.clone(), Arc::clone(&frontend));
        }
        let stopped = supervisor.run();
        let mut closed = state.close();
        let notices = Notices::new(options, listener.is_none(), &mut closed);
        let mut over = Over {
            active: closed.active,
            handover,
            held_syncs: closed.notes.held_syncs,
            checkpoint_micros: closed.notes.checkpoint_micros,
            listener,
            signals,
            served: false,
            steps,
            after_end: Some(Arc::default()),
        };
        over.release();
        match stopped {
            Stopped::Ended(end) => {
                if end != Ending::Exited(0) {
                    let opened = privileges.iter().flat_map(privileges::PrivilegeWatch::opened);
                    for path in opened.filter(|path| Some(Gain::read(path)) != gain) {
                        let notice = Notice::PrivilegedProgramOpened(path);
                        let _ = send(&*frontend, &Message::Notice(notice));
                    }
                }
                let summary = Summary {
                    accounts: closed.notes.accounts,
                    error: closed.failure.filter(|_| !options.or_real),
                    end: Some(end),
                    ..Summary::default()
                };
                over.finish(options, &frontend, end, summary, notices);
            }
            Stopped::FrontendGone => {
                // Like a kill of the command itself: the command ends, its children do not.
                kill(command, Signal::KILL.as_raw());
                if let Some(active) = &mut over.active {
                    active.abandon();
                    active.enter(Phase::Serving);
                }
                over.after_end = None;
            }
        }
        over.serve_survivors(frontend);
    }
}

/// A run whose command has ended.
struct Over {
    active: Option<Active>,
    handover: Arc<Handover>,
    held_syncs: HeldSyncs,
    checkpoint_micros: u64,
    listener: Option<Arc<Listener>>,
    signals: SignalReader,
    /// Whether a thread serves survivors. Without the thread, survivors' calls wait until the
    /// commit is over.
    served: bool,
    /// Steps of image builds, which a daemon has started.
    steps: Option<Steps>,
    /// The calls that survivors made meanwhile, until these are reported.
    after_end: Option<Arc<Mutex<Accounts>>>,
}

impl Over {
    /// Starts to serve survivors: from here on every call goes to the kernel.
    fn release(&mut self) {
        let Some(listener) = self.listener.clone().filter(|listener| is_used(listener)) else {
            return;
        };
        let server = thread::Builder::new().name("serve".into()).stack_size(64 * 1024);
        let after_end = self.after_end.as_ref().map(Arc::downgrade).unwrap_or_default();
        self.served = server.spawn(move || serve(&listener, &after_end)).is_ok();
    }

    /// Commits, clears the markers, and reports to the frontend.
    fn finish(
        &mut self,
        options: &RunOptions,
        frontend: &OwnedFd,
        end: Ending,
        mut summary: Summary,
        mut notices: Notices,
    ) {
        let notify = |message: &Message| drop(send(frontend, message));
        let survivors = notices.after_grace(|| self.survivors());
        // Sent before the frontend may stop waiting.
        for notice in notices.pending(&survivors) {
            notify(&Message::Notice(notice));
        }
        if options.commit {
            notify(&Message::Ended(end));
        }
        self.commit(options, frontend, &survivors, &mut summary);
        if let Some(runtime) = prepare::directory_of_counts(options) {
            counts::note(&runtime, summary.commit.as_ref().map(CommitReport::is_durable));
        }
        let survivors = self.survivors();
        let mut pending = notices.pending(&survivors);
        if !survivors.is_empty() {
            pending.extend(notices.survivors());
        }
        pending.extend(self.active.as_ref().and_then(|active| active.scope.uncommitted_fuse()));
        for notice in pending {
            notify(&Message::Notice(notice));
        }
        let serves_steps = self.steps.as_ref().is_some_and(Steps::close);
        let serves = self.stays() || serves_steps;
        // Before the frontend exits: a reader of the run file must not see a commit in progress
        // then.
        if let Some(active) = &mut self.active {
            active.enter(Phase::Serving);
        }
        if serves {
            environment::forget();
        }
        if let Some(after_end) = self.after_end.take() {
            summary.accounts.add(&after_end.lock().unwrap_or_else(PoisonError::into_inner));
        }
        summary.stays = serves || summary.error == Some(RunError::Commit);
        report(frontend, summary);
    }

    /// Commits and clears the markers. Notes the outcome in `summary`.
    fn commit(
        &mut self,
        options: &RunOptions,
        frontend: &OwnedFd,
        survivors: &[Process],
        summary: &mut Summary,
    ) {
        let Some(active) = &mut self.active else { return };
        if mutant::is("clear-before-commit") {
            let _ = active.markers.clear();
        }
        if options.commit {
            let report = active.commit(survivors, &mut progress_sender(frontend));
            if report.as_ref().is_some_and(|report| !report.is_durable()) {
                summary.error.get_or_insert(RunError::Commit);
            }
            summary.commit = report;
        }
        // If this step waits, the frontend prints a notice.
        self.handover.change_marker_step(MarkerStep::None, MarkerStep::Clears);
        let markers = if summary.error == Some(RunError::Commit) {
            active.markers.abandon();
            Ok(Vec::new())
        } else {
            active.markers.clear()
        };
        self.handover.change_marker_step(MarkerStep::Clears, MarkerStep::None);
        let markers = markers.unwrap_or_else(|error| {
            summary.error.get_or_insert(error);
            Vec::new()
        });
        summary.balance = Balance {
            checkpoint_micros: self.checkpoint_micros,
            ..Balance::from_held(&self.held_syncs, &markers, active.markers.cost())
        };
    }

    /// Returns the processes that outlive the command. All of them descend from the
    /// supervisor, which is a subreaper; without children it has no survivors.
    fn survivors(&self) -> Vec<Process> {
        self.reap();
        let peek = WaitFor { ends: true, peek: true, ..WaitFor::default() };
        match process::wait(Whose::Any, peek) {
            Err(_) => Vec::new(),
            Ok(_) => process_tree::descendants(std::process::id()),
        }
    }

    fn stays(&self) -> bool {
        self.reap();
        self.listener.as_deref().is_some_and(is_used)
    }

    fn reap(&self) {
        let take = WaitFor { ends: true, ..WaitFor::default() };
        let peek = WaitFor { peek: true, ..take };
        while let Ok(Some((pid, change))) = process::wait(Whose::Any, peek) {
            if matches!(change, ChildChange::Trapped(_)) {
                // A call is still being changed; its tracer thread waits for this stop.
                break;
            }
            let _ = process::wait(Whose::Id(pid), take);
        }
        while self.signals.next().is_some() {}
    }

    /// Stays as the parent of the survivors until the last of them has exited.
    fn serve_survivors(mut self, frontend: Arc<OwnedFd>) {
        if let Some(active) = &mut self.active {
            // A marker that is not durable keeps its file system in use.
            active.markers.abandon();
        }
        // The frontend waits for this.
        let _ = shutdown(&frontend, Shutdown::Both);
        drop(frontend);
        while self.stays() {
            let Some(listener) = &self.listener else { break };
            if !self.served {
                serve(listener, &Weak::new());
                break;
            }
            let mut fds = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(listener.as_ref(), PollFlags::empty()),
            ];
            // EINTR only repeats the loop.
            let _ = rustix::event::poll(&mut fds, None);
        }
        if let Some(steps) = self.steps.take() {
            steps.finish();
        }
    }
}

/// Sends `summary` to the frontend.
fn report(frontend: &OwnedFd, summary: Summary) {
    let mut done = Message::Done(Box::new(summary));
    if send(frontend, &done).is_err()
        && let Message::Done(summary) = &mut done
    {
        // There were too many programs for one message. `calls` has their sums.
        summary.accounts.programs.clear();
        let _ = send(frontend, &done);
    }
}
