//! The order of a run, in the supervisor's process:
//! mark, launch, supervise, release, commit, clear, serve.
//!
//! - The marker is durable before the first call is held (sealed: before the
//!   command starts, because nobody sees its first call).
//! - Holding ends *before* the commit begins: a call that is held after its file
//!   system was synced would be lost.
//! - The marker is cleared after every file system said that it is durable.

mod near;
mod notices;
mod prepare;

#[cfg(test)]
pub(crate) use prepare::record;

use crate::active::Active;
use crate::families::{self, Process};
use crate::launching;
use crate::options::{IoUring, Options};
use crate::presence::Presence;
use crate::protocol::{CommandEnd, Message, Notice, Summary, offer, send};
use crate::rights::{self, Gain};
use crate::runfile::Phase;
use crate::serve::{is_used, serve};
use crate::state::Shared;
use crate::supervisor::{Stopped, Supervisor};
use crate::trouble::Trouble;
use notices::Notices;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use synconce_durable::mutant;
use synconce_filter::{Answer, Program, Spec, native_abis, program};
use synconce_sys::handover::Takeover;
use synconce_sys::launch::{Filter, LaunchError, Launched, launch};
use synconce_sys::notify::{Listener, Notification};
use synconce_sys::process::{self, Change, WaitFor, Whose};
use synconce_sys::seccomp::Instruction;
use synconce_sys::signals::{Reader, Set, send as kill};

/// As `families::SUPERVISOR`.
const NAME_FOR_KERNEL: &CStr = c"synconce-hold";
const EBUSY: i32 = 16;
const SIGKILL: i32 = 9;
const SIGCHLD: i32 = 17;

/// Supervises a run to its end and serves its survivors; the exit code is of no
/// interest to anybody. `mask` is the signal mask for the command.
pub(crate) fn supervise(options: &Options, face: OwnedFd, mask: Set, takeover: Takeover) -> i32 {
    process::set_name(NAME_FOR_KERNEL);
    match start(options, &face, mask, takeover) {
        Ok(started) => {
            started.go_on(options, face);
            0
        }
        Err(trouble) => {
            // Without a face there is nobody to tell.
            let _ = send(&face, &Message::Failed(trouble));
            125
        }
    }
}

/// A run whose command has started.
struct Started {
    active: Active,
    listener: Option<Arc<Listener>>,
    signals: Reader,
    command: u32,
    /// A call that the command made before we could listen.
    first_call: Option<Notification>,
    /// The kind of rights that the command itself does not gain, as the user was told.
    told: Option<Gain>,
    /// In a sealed run: tells processes of the run that the command has not ended.
    presence: Option<Presence>,
}

/// Mark and launch.
fn start(
    options: &Options,
    face: &OwnedFd,
    mask: Set,
    takeover: Takeover,
) -> Result<Started, Trouble> {
    let set_up = |act: &str, error: std::io::Error| Trouble::set_up(act, &error);
    process::adopt_orphans().map_err(|error| set_up("cannot become a subreaper", error))?;
    let children = Set::of(&[SIGCHLD]);
    children.block();
    let signals = Reader::new(&children).map_err(|error| set_up("cannot read signals", error))?;
    let mut active = prepare::prepare(options)?;
    let launched = launch_held(options, &mut active, mask, &takeover, face);
    let (launched, presence) = launched.inspect_err(|_| {
        // Nothing was held. A marker that cannot be removed says too much, not too little.
        let _ = active.clear(false);
    })?;
    let no_rights = launched.no_new_privs.then(|| would_gain_rights(&launched.executed)).flatten();
    process::leave_session();
    let listener = launched.listener.map(|listener| Arc::new(listener.noting(takeover.handover)));
    if let Some(listener) = &listener {
        listener.wake_on_same_cpu();
    }
    // The face's end is noticed by the loop.
    let _ = send(face, &Message::Started { pid: launched.pid });
    if let Some(notice) = active.news_of_earlier() {
        let _ = send(face, &Message::Notice(notice));
    }
    if listener.is_none()
        && let Some(notice) = active.news_of_marker()
    {
        let _ = send(face, &Message::Notice(notice));
    }
    if listener.is_none() && !options.sealed {
        let _ = send(face, &Message::Notice(Notice::ForeignListener));
    }
    let told = no_rights.as_deref().map(Gain::of);
    if let Some(path) = no_rights {
        let _ = send(face, &Message::Notice(Notice::NoRightsGained(path)));
    }
    let first_call = launched.first_call;
    Ok(Started { active, listener, signals, command: launched.pid, first_call, told, presence })
}

fn launch_held(
    options: &Options,
    active: &mut Active,
    mask: Set,
    takeover: &Takeover,
    face: &OwnedFd,
) -> Result<(Launched, Option<Presence>), Trouble> {
    let bad = |error: std::io::Error| Trouble::set_up("cannot use the command", &error);
    let command = launching::command(&options.command, Some(active.id())).map_err(bad)?;
    // Nobody sees the first call of a sealed run, so its marker comes before it.
    let launch_sealed = |active: &mut Active| {
        active.seal(options)?;
        active.engage().map_err(|trouble| match trouble {
            Trouble::Marker(act) => Trouble::MarkerUnwritable(act),
            other => other,
        })?;
        // Before a call is held: without the supervisor only the face can tell.
        let _ = send(face, &Message::Marked { path: active.marker() });
        // Without a socket, an inner run has to find us in /proc.
        let presence = Presence::new().ok();
        let spec = Spec {
            identity: presence.as_ref().map(Presence::identity),
            ..spec(options, Answer::Sealed, false)
        };
        let program = instructions(&program(&spec, native_abis()));
        let filter = Filter { supervised: false, stops_exec: false, program: &program };
        let launched = launch(&command, filter, mask, takeover);
        let launched = launched.map_err(|error| launch_trouble(error, options))?;
        presence.iter().for_each(Presence::answer);
        Ok((launched, presence))
    };
    if options.sealed {
        return launch_sealed(active);
    }
    // Executions are looked at only where they might gain no rights.
    let watch = !rustix::process::geteuid().is_root();
    let supervised =
        instructions(&program(&spec(options, Answer::Supervised, watch), native_abis()));
    let filter = Filter { supervised: true, stops_exec: watch, program: &supervised };
    match launch(&command, filter, mask, takeover) {
        // A foreign listener.
        Err(LaunchError::Filter(error)) if error.raw_os_error() == Some(EBUSY) => {
            launch_sealed(active)
        }
        Err(error) => Err(launch_trouble(error, options)),
        Ok(launched) => Ok((launched, None)),
    }
}

/// The path of the command itself, if its execution gains rights.
fn would_gain_rights(command: &CStr) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(command.to_bytes()));
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    rights::gains(&file).then(|| path.to_owned())
}

fn launch_trouble(error: LaunchError, options: &Options) -> Trouble {
    match error {
        LaunchError::Clone(error) => Trouble::set_up("cannot make a process", &error),
        LaunchError::Filter(error) => Trouble::Filter(error.raw_os_error().unwrap_or(0)),
        LaunchError::Handover(error) => {
            Trouble::set_up("cannot pass the listener to the front process", &error)
        }
        LaunchError::Exec(error) => Trouble::Exec {
            command: options.command[0].to_string_lossy().into_owned(),
            errno: error.raw_os_error().unwrap_or(0),
        },
    }
}

fn spec(options: &Options, answer: Answer, watch_exec: bool) -> Spec {
    // A supervisor counts what it lets through.
    let io_uring_pass = options.io_uring == IoUring::Pass && answer == Answer::Sealed;
    Spec { answer, io_uring_pass, watch_exec, identity: None }
}

fn instructions(program: &Program) -> Vec<Instruction> {
    let convert = |i: &synconce_filter::Instruction| Instruction {
        code: i.code,
        jump_true: i.jt,
        jump_false: i.jf,
        operand: i.k,
    };
    program.instructions().iter().map(convert).collect()
}

impl Started {
    fn go_on(self, options: &Options, face: OwnedFd) {
        let face = Arc::new(face);
        let Self { active, listener, signals, command, first_call, told, presence } = self;
        let state = Shared::new(active);
        let supervisor = Supervisor::new(
            options,
            listener.clone(),
            Arc::clone(&face),
            &signals,
            command,
            state.clone(),
        );
        told.into_iter().for_each(|gain| supervisor.told_of(gain));
        let stopped = supervisor.run(first_call);
        drop(presence);
        let mut closed = state.close();
        let notices = Notices::new(options, listener.is_none(), &mut closed);
        let mut over = Over { active: closed.active, listener, signals, served: false };
        over.release();
        match stopped {
            Stopped::Ended(end) => {
                let summary = Summary {
                    accounts: closed.accounts,
                    trouble: closed.failure,
                    end: Some(end),
                    ..Summary::default()
                };
                over.finish(options, &face, end, summary, notices);
            }
            Stopped::FaceGone => {
                // As a kill of the command itself would: it ends, its children do not.
                kill(command, SIGKILL);
                over.active.iter_mut().for_each(Active::abandon);
            }
        }
        drop(face);
        over.serve_survivors();
    }
}

/// A run whose command has ended.
struct Over {
    active: Option<Active>,
    listener: Option<Arc<Listener>>,
    signals: Reader,
    /// Whether a thread serves survivors. Without one they wait for the commit.
    served: bool,
}

impl Over {
    /// From here on every call goes to the kernel.
    fn release(&mut self) {
        let Some(listener) = self.listener.clone().filter(|listener| is_used(listener)) else {
            return;
        };
        let server = thread::Builder::new().name("serve".into()).stack_size(64 * 1024);
        self.served = server.spawn(move || serve(&listener)).is_ok();
    }

    /// Commit, clear, report.
    fn finish(
        &mut self,
        options: &Options,
        face: &OwnedFd,
        end: CommandEnd,
        mut summary: Summary,
        mut notices: Notices,
    ) {
        let tell = |message: &Message| drop(send(face, message));
        let survivors = self.survivors();
        // Before the face may give up waiting.
        notices.news(&survivors).into_iter().map(Message::Notice).for_each(|news| tell(&news));
        if options.commit {
            tell(&Message::Ended(end));
        }
        if let Some(active) = &mut self.active {
            if mutant::is("clear-before-commit") {
                let _ = active.clear(false);
            }
            if options.commit {
                let report = active.commit(&survivors, &mut |progress| {
                    let waiting = progress.waiting.iter().map(|path| (*path).to_owned());
                    let waiting = waiting.collect();
                    offer(face, &Message::Progress { waiting, dirty: progress.dirty });
                });
                if report.as_ref().is_some_and(|report| !report.is_durable()) {
                    summary.trouble.get_or_insert(Trouble::Commit);
                }
                summary.commit = report;
            }
            if let Err(error) = active.clear(summary.trouble == Some(Trouble::Commit)) {
                summary.trouble.get_or_insert(error);
            }
        }
        let mut news = notices.news(&self.survivors());
        news.extend(self.active.as_ref().and_then(Active::uncommitted_fuse));
        news.into_iter().map(Message::Notice).for_each(|news| tell(&news));
        let serves = self.stays();
        if serves {
            // Before the face ends: whoever looks then shall not see a commit.
            self.active.iter_mut().for_each(|active| active.enter(Phase::Serving));
        }
        summary.stays = serves || summary.trouble == Some(Trouble::Commit);
        let mut done = Message::Done(Box::new(summary));
        if send(face, &done).is_err()
            && let Message::Done(summary) = &mut done
        {
            // Too many programs for one message: their sum is in the calls.
            summary.accounts.programs.clear();
            tell(&done);
        }
    }

    /// Who outlives the command. All of them descend from us, because orphans
    /// are given to us; without children there is nobody to look for.
    fn survivors(&self) -> Vec<Process> {
        self.reap();
        let peek = WaitFor { ends: true, peek: true, ..WaitFor::default() };
        match process::wait(Whose::Any, peek) {
            Err(_) => Vec::new(),
            Ok(_) => families::descendants(std::process::id()),
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
            if matches!(change, Change::Trapped(_)) {
                // A call is still being changed; its thread waits for this stop.
                break;
            }
            let _ = process::wait(Whose::Id(pid), take);
        }
        while self.signals.next().is_some() {}
    }

    /// Stays as the parent of what outlives the run until the last of it is gone.
    fn serve_survivors(mut self) {
        if self.stays() {
            self.active.iter_mut().for_each(|active| active.enter(Phase::Serving));
        }
        while self.stays() {
            let Some(listener) = &self.listener else { break };
            if !self.served {
                serve(listener);
                break;
            }
            let mut fds = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(listener.as_ref(), PollFlags::empty()),
            ];
            // An interruption only means to look again.
            let _ = rustix::event::poll(&mut fds, None);
        }
    }
}
