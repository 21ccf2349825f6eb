//! Answers to the calls of a real process. Needs no root: without a privilege, the launch sets
//! no_new_privs.

use super::Responder;
use crate::call::fd_info::FdInfo;
use crate::call::policy::{Decision, PendingCall};
use crate::call::rules::{Blocking, MayBlock};
use crate::commit::active::Active;
use crate::commit::state::SharedState;
use crate::lifecycle::launch::launch_held;
use crate::options::RunOptions;
use crate::report::accounts::{PassReason, Tally};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use synconce_filter::Call;
use synconce_sys::handover::Takeover;
use synconce_sys::notify::Listener;
use synconce_sys::signals::SignalSet;

const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Syncs its first argument, and exits with the errno.
const SYNC: &str = "use IO::Handle; open(my $file, '<', $ARGV[0]) or exit 99; \
    exit($file->sync ? 0 : $!)";
/// Syncs a pipe, and exits with the errno.
const SYNC_OF_A_PIPE: &str = "use IO::Handle; pipe(my $out, my $in) or exit 99; \
    exit($in->sync ? 0 : $!)";

/// A perl that runs under a filter, and what answers its calls.
struct HeldPerl {
    responder: Responder,
    listener: Arc<Listener>,
    state: SharedState,
    pid: Pid,
    /// The frontend's end of the socket.
    _frontend: UnixStream,
}

impl HeldPerl {
    /// Starts `script`. Its argument is a file on a disk: this program.
    fn start(options: &RunOptions, script: &str) -> Self {
        let program = std::env::current_exe().unwrap().into_os_string();
        let words = ["perl", "-e", script].map(OsString::from).into_iter();
        let options = RunOptions { command: words.chain([program]).collect(), ..options.clone() };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours: Arc<OwnedFd> = Arc::new(ours.into());
        let (mut active, takeover) = (Active::for_tests(&options), Takeover::new().unwrap());
        let launched = launch_held(
            &options,
            &mut active,
            SignalSet::from_numbers(&[]),
            &takeover,
            &ours,
            None,
        )
        .unwrap();
        let state = SharedState::new(active);
        let listener = Arc::new(launched.listener.expect("a listener"));
        let responder =
            Responder::new(&options, Arc::clone(&listener), ours, launched.pid, state.clone());
        let pid = Pid::from_raw(launched.pid.cast_signed()).unwrap();
        Self { responder, listener, state, pid, _frontend: theirs }
    }

    /// Returns the next call that the filter stops; `None` once the process has ended.
    fn next_call(&self) -> Option<PendingCall> {
        let mut fds = [PollFd::new(&*self.listener, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&LIMIT)), Ok(1), "a call or the end");
        if !fds[0].revents().contains(PollFlags::IN) {
            return None;
        }
        let notification = self.listener.receive().unwrap()?;
        let (abi, call) = Call::identify(notification.arch, notification.number).unwrap();
        Some(PendingCall { notification, abi, call })
    }

    fn answer(&self, pending: &PendingCall, blocking: Blocking) -> Result<(), MayBlock> {
        let mut fd_info = FdInfo::default().may_block();
        self.responder.answer(&mut fd_info, pending, blocking).map(drop)
    }

    /// Answers every further call. Returns the exit code of the process.
    fn end(&self) -> Option<i32> {
        while let Some(pending) = self.next_call() {
            self.answer(&pending, Blocking::Allowed).unwrap();
        }
        waitpid(Some(self.pid), WaitOptions::empty()).unwrap().unwrap().1.exit_status()
    }

    fn counts(&self) -> BTreeMap<String, Tally> {
        let calls = self.state.lock().notes.accounts.calls.clone();
        calls.into_iter().filter(|(_, tally)| *tally != Tally::default()).collect()
    }
}

impl Drop for HeldPerl {
    fn drop(&mut self) {
        // A failed test leaves the process waiting for an answer.
        if std::thread::panicking() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

#[test]
fn a_held_sync_returns_0_and_is_counted_once() {
    let perl = HeldPerl::start(&RunOptions::default(), SYNC);
    assert_eq!(perl.end(), Some(0));
    let held = Tally { held: 1, ..Tally::default() };
    assert_eq!(perl.counts(), BTreeMap::from([("fsync".to_owned(), held)]));
}

#[test]
fn a_sync_of_a_pipe_gets_the_errno_of_the_kernel() {
    let perl = HeldPerl::start(&RunOptions::default(), SYNC_OF_A_PIPE);
    assert_eq!(perl.end(), Some(libc::EINVAL));
    let reasons = BTreeMap::from([(PassReason::NoFile, 1)]);
    let passed = Tally { passed: 1, reasons, ..Tally::default() };
    assert_eq!(perl.counts(), BTreeMap::from([("fsync".to_owned(), passed)]));
}

#[test]
fn a_call_that_needs_the_marker_waits_for_a_thread_that_may_block_and_is_real_once_the_run_is_over()
{
    let perl = HeldPerl::start(&RunOptions { commit: true, ..RunOptions::default() }, SYNC);
    let pending = perl.next_call().expect("a call");
    assert_eq!(perl.answer(&pending, Blocking::Refused), Err(MayBlock));
    assert!(perl.listener.is_valid(pending.notification.id), "no answer was sent");
    perl.state.close();
    assert_eq!(perl.answer(&pending, Blocking::Refused), Ok(()));
    assert_eq!(perl.end(), Some(0));
    assert_eq!(perl.counts(), BTreeMap::new());
}

#[test]
fn a_call_whose_caller_is_killed_after_the_decision_is_not_counted() {
    let perl = HeldPerl::start(&RunOptions::default(), SYNC);
    let pending = perl.next_call().expect("a call");
    kill_process(perl.pid, Signal::KILL).unwrap();
    waitpid(Some(perl.pid), WaitOptions::empty()).unwrap();
    for decision in [Decision::Hold(Vec::new()), Decision::Pass(PassReason::NoFile)] {
        perl.responder.act(&pending, decision, Blocking::Allowed).unwrap();
        assert_eq!(perl.counts(), BTreeMap::new());
    }
}
