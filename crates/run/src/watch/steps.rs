//! Steps of image builds. A daemon starts them, so they do not descend from the command. The
//! runtime of a step hands over the listener of the step's filter (see
//! [`synconce_durable::step_watch`]).
//!
//! A filter without a listener fails its calls with ENOSYS, so this process stays until each step
//! that it watches has ended. A connection of synconce-oci that is still open counts as a step: the
//! runtime is about to connect.

mod socket;

pub(crate) use self::socket::{StepSocket, remove_left_socket};

use super::Watch;
use super::line::{StepEnd, StepStart, UnseenSteps};
use crate::call::fd_info::FdInfo;
use crate::call::lookups::ProcLookups;
use crate::call::policy::PendingCall;
use crate::call::serve::released_answer;
use crate::call::tracee_locks::TraceeLocks;
use crate::call::workers::{After, Workers};
use crate::process::process_tree::ancestors;
use crate::process::real::RealTrees;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use synconce_durable::step_watch::{ASK, LEAVE, WATCH, WatchedStep};
use synconce_filter::Call;
use synconce_sys::notify::{Answer, Listener};
use synconce_sys::peer::Peer;

/// The step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepOf {
    /// The number of the step in the record, from 1 on.
    pub number: u32,
    /// The first process of the step's container.
    pub init: u32,
}

/// The most bytes of a message: a longer one is of neither synconce-oci nor a runtime.
const LONGEST: usize = 1 << 20;
const STACK: usize = 256 * 1024;

/// The steps that are watched.
pub(crate) struct Steps(Arc<Shared>);

struct Shared {
    watch: Arc<Watch>,
    state: Mutex<StepsState>,
    has_changed: Condvar,
}

#[derive(Default)]
struct StepsState {
    /// None once no more steps are watched.
    socket: Option<StepSocket>,
    /// No further step is accepted.
    is_closing: bool,
    /// Steps that have not ended, and connections of synconce-oci.
    open: usize,
    /// The number of steps so far.
    count: u32,
}

impl Steps {
    /// Starts to watch the steps whose runtimes connect to `socket`. Their calls go to `watch`.
    /// Returns `None` without a socket.
    pub(crate) fn begin(
        socket: Option<Result<StepSocket, String>>,
        watch: Option<Arc<Watch>>,
    ) -> Option<Self> {
        let (socket, watch) = socket.zip(watch)?;
        let socket = socket.map_err(|why| watch.note_unseen_steps(&why)).ok()?;
        let accepting = Arc::clone(&socket.socket);
        let state = StepsState { socket: Some(socket), ..StepsState::default() };
        let shared =
            Arc::new(Shared { watch, state: Mutex::new(state), has_changed: Condvar::default() });
        let server = Arc::clone(&shared);
        thread::Builder::new()
            .name("steps".into())
            .stack_size(STACK)
            .spawn(move || accept(&server, &accepting))
            .ok()?;
        Some(Self(shared))
    }

    /// Accepts no further step. Returns whether a step goes on.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.0.lock();
        state.is_closing = true;
        state.remove_socket_if_idle();
        state.open > 0
    }

    /// Waits until the last step has ended.
    pub(crate) fn finish(self) {
        self.close();
        let mut state = self.0.lock();
        while state.open > 0 {
            state = self.0.has_changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl StepsState {
    /// Removes the socket's name: a runtime that is about to connect finds it until then.
    fn remove_socket_if_idle(&mut self) {
        if self.is_closing && self.open == 0 {
            self.socket = None;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, StepsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection until the returned value is dropped. Returns `None` if no more
    /// connections are accepted.
    fn enter_connection(self: &Arc<Self>) -> Option<Open> {
        let mut state = self.lock();
        (!state.is_closing).then(|| self.enter(&mut state))
    }

    /// Counts a step whose listener was handed over, until the returned value is dropped.
    fn enter_step(self: &Arc<Self>) -> Open {
        self.enter(&mut self.lock())
    }

    fn enter(self: &Arc<Self>, state: &mut StepsState) -> Open {
        state.open += 1;
        Open(Arc::clone(self))
    }

    fn next_number(&self) -> u32 {
        let mut state = self.lock();
        state.count += 1;
        state.count
    }
}

struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open -= 1;
        state.remove_socket_if_idle();
        self.0.has_changed.notify_all();
    }
}

/// Attends to connections until the socket is shut down.
fn accept(shared: &Arc<Shared>, socket: &OwnedFd) {
    loop {
        match rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
            Ok(connection) => {
                let shared = Arc::clone(shared);
                let thread = thread::Builder::new().name("step".into()).stack_size(STACK);
                // Without a thread the connection is closed, and the step is held as usual.
                let _ = thread.spawn(move || attend(&shared, &connection));
            }
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(_) => return,
        }
    }
}

/// What a runtime sends beside the listener.
#[derive(Deserialize)]
struct HandedOver {
    pid: u32,
    /// A [`WatchedStep`].
    metadata: String,
}

fn attend(shared: &Arc<Shared>, connection: &OwnedFd) {
    let us = rustix::process::geteuid().as_raw();
    let Ok(peer) = Peer::read(connection) else { return };
    if peer.user != 0 && peer.user != us {
        return;
    }
    let Some((text, listener)) = receive(connection) else { return };
    match (text.split_first(), listener) {
        (Some((&ASK, question)), _) => answer_question(shared, connection, peer.pid, question),
        (_, Some(listener)) => {
            let Ok(HandedOver { pid, metadata }) = serde_json::from_slice(&text) else { return };
            let Ok(step) = serde_json::from_str::<WatchedStep>(&metadata) else { return };
            let _open = shared.enter_step();
            let number = shared.next_number();
            shared.watch.begin_step(number, &step);
            serve(&shared.watch, Arc::new(listener.into()), StepOf { number, init: pid });
            shared.watch.end_step(number);
        }
        _ => {}
    }
}

/// Answers the question of the synconce-oci `pid`, and waits until the process of its step starts.
fn answer_question(shared: &Arc<Shared>, connection: &OwnedFd, pid: u32, question: &[u8]) {
    let Ok(step) = serde_json::from_slice::<WatchedStep>(question) else { return };
    // A process that is in another pid namespace cannot be examined.
    let Some(_open) = (pid != 0).then(|| shared.enter_connection()).flatten() else { return };
    let us = std::process::id();
    let send = |answer: u8| {
        let _ = rustix::net::send(connection, &[answer], SendFlags::NOSIGNAL);
    };
    if ancestors(pid).any(|ancestor| ancestor.pid == us) {
        send(LEAVE);
    } else if step.unseen.is_some() {
        shared.watch.begin_step(shared.next_number(), &step);
        send(LEAVE);
    } else {
        send(WATCH);
        let _ = rustix::net::recv(connection, &mut [0][..], RecvFlags::empty());
    }
}

/// Receives the line of a synconce-oci, or the JSON of a runtime with the listener.
fn receive(connection: &OwnedFd) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    let (mut text, mut listener) = (Vec::new(), None);
    let mut part = [0; 4096];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut part)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(connection, &mut into, &mut ancillary, flags)
        });
        let length = got.ok()?.bytes;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut files) = message {
                listener = files.next().or(listener);
            }
        }
        text.extend_from_slice(&part[..length]);
        // runc 1.1 leaves its connection open while the step runs.
        let is_whole = match text.first() {
            Some(&ASK) => text.ends_with(b"\n"),
            _ => serde_json::from_slice::<IgnoredAny>(&text).is_ok(),
        };
        if is_whole {
            return Some((text, listener));
        }
        if length == 0 || text.len() > LONGEST {
            return None;
        }
    }
}

/// Answers the calls of `step` until its last process has ended.
fn serve(watch: &Arc<Watch>, listener: Arc<Listener>, step: StepOf) {
    let (workers, fd_info) = (Workers::new(), FdInfo::default());
    loop {
        let mut fds = [PollFd::new(&*listener, PollFlags::IN)];
        let waited = rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None));
        let ready = fds[0].revents();
        if waited.is_err() || !ready.contains(PollFlags::IN) {
            return;
        }
        let Ok(Some(notification)) = listener.receive() else { continue };
        let let_through = |answer| {
            // An error means that the caller has exited.
            let _ = listener.answer(notification.id, answer);
        };
        let Some((abi, call)) = Call::identify(notification.arch, notification.number) else {
            let_through(released_answer(&notification));
            continue;
        };
        let pending = PendingCall { notification, abi, call };
        let (watch, by, mut fd_info) =
            (Arc::clone(watch), Arc::clone(&listener), fd_info.may_block());
        let job = move || {
            let mut lookups = ProcLookups {
                thread: notification.thread,
                fd_info: &mut fd_info,
                real: &RealTrees::default(),
                unmounters: &TraceeLocks::default(),
                waits: &|| by.is_valid(notification.id),
            };
            // A worker may block, so its look-up always has a result.
            let _ = watch.answer(&by, &mut lookups, &pending, Some(step));
            After::Idle
        };
        if workers.run(job).is_err() {
            let_through(Answer::Continue);
        }
    }
}

impl Watch {
    /// Records why no steps are seen.
    fn note_unseen_steps(&self, why: &str) {
        self.record.write(&UnseenSteps { unseen_steps: why });
    }

    /// Records that the step `number` begins.
    fn begin_step(&self, number: u32, step: &WatchedStep) {
        let syncs = self.syncs();
        if !syncs.has_ended {
            self.record.write(&StepStart { step: number, at: self.record.micros(), about: step });
        }
    }

    /// Records that the last process of the step `number` has ended, and the syncs of those that
    /// were killed.
    fn end_step(&self, number: u32) {
        let mut syncs = self.syncs();
        if !syncs.has_ended {
            for line in syncs.take_all(|line| line.step == Some(number)) {
                self.record.write(&line);
            }
            self.record.write(&StepEnd { step_end: number, at: self.record.micros() });
        }
    }
}
