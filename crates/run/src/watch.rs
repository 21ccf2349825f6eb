//! Times the syncs of a command, and looks at its programs. Holds no sync.
//!
//! A sync of a descriptor is done by a worker thread on the caller's own open file
//! (pidfd_getfd(2)): the kernel reports write-back errors by open file, so the result is the one
//! that the caller would have got. The caller waits as it would in the kernel: only a fatal
//! signal ends the wait (Linux 5.19). A call that needs the caller's memory, rights or mounts is
//! left to the kernel and recorded without a time.

mod callers;
pub(crate) mod line;
mod programs;
pub(crate) mod recording;
mod sampler;
pub(crate) mod steps;
mod syncs;

use self::callers::Callers;
use self::line::{Call as CallLine, LastLine, Start, Would};
use self::programs::Programs;
use self::recording::Recording;
use self::sampler::{Looks, Sampler};
use self::steps::StepOf;
use self::syncs::{CallId, Syncs};
use crate::call::caller::Memory;
use crate::call::lookups::Lookups;
use crate::call::policy::{Decision, PendingCall, decide};
use crate::call::responder::callers_file;
use crate::call::rules::MayBlock;
use crate::call::serve::released_answer;
use crate::options::RunOptions;
use crate::report::protocol::Ending;
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use synconce_filter::{Call, CallProperty, args};
use synconce_sys::file_sync;
use synconce_sys::notify::{Answer, Listener};

/// Answers the calls of a command that is watched, from any worker thread.
pub(crate) struct Watch {
    record: Arc<Recording>,
    callers: Mutex<Callers>,
    sampler: Arc<Sampler>,
    programs: Arc<Programs>,
    syncs: Mutex<Syncs>,
}

impl Watch {
    /// Returns the watch over a command that has just started, if `options` ask for a record.
    pub(crate) fn start(options: &RunOptions) -> Option<Self> {
        let record = options.record.clone()?;
        record.write(&Start::new(options));
        let (callers, sampler, syncs) = Default::default();
        Some(Self { record, callers, sampler, programs: Programs::watched(), syncs })
    }

    /// Does the call of `pending`, of the command or of `step`, or leaves it to the kernel, and
    /// records it. May wait for a disk.
    ///
    /// # Errors
    /// Those of [`decide`].
    pub(crate) fn answer(
        &self,
        listener: &Listener,
        lookups: &mut impl Lookups,
        pending: &PendingCall,
        step: Option<StepOf>,
    ) -> Result<(), MayBlock> {
        let notification = &pending.notification;
        let would = match decide(pending, lookups, &RunOptions::default())? {
            Decision::Ignore
            | Decision::Handshake
            | Decision::Request(_)
            | Decision::Detach
            | Decision::EndMachine => {
                // An error means that the caller has exited.
                let _ = listener.answer(notification.id, released_answer(notification));
                return Ok(());
            }
            // A profile, by which steps are held, cannot change a call.
            Decision::Rewrite(_) if step.is_some() => Would::Pass,
            Decision::Hold(_) | Decision::HoldUnseen | Decision::Rewrite(_) => Would::Hold,
            Decision::Refuse(_) => Would::Refuse,
            _ => Would::Pass,
        };
        let is_by_descriptor = pending.call.is(CallProperty::ByDescriptor);
        let opened = is_by_descriptor.then(|| callers_file(pending)).transpose();
        let (file, closed) = match opened {
            Ok(file) => (file, false),
            Err(error) => (None, error == Errno::BADF),
        };
        // The file, and all that /proc shows, is of the caller only if the caller still waits.
        let mut line = self.describe(pending, file.as_ref(), would, step);
        if closed {
            // The kernel finds this, too, and waits for nothing.
            (line.wait, line.errno) = (Some(0), Some(Errno::BADF.raw_os_error()));
        }
        if !listener.is_valid(notification.id) {
            return Ok(());
        }
        let id = (notification.id, line.step);
        let answer = self.perform(pending, file, line);
        // Locked: the caller's next call must not count as this one, made again after a signal.
        let mut syncs = self.syncs();
        let is_answered = listener.answer(notification.id, answer).unwrap_or(false);
        if let Some(line) = is_answered.then(|| syncs.take(id)).flatten() {
            self.record.write(&line);
        }
        Ok(())
    }

    /// Does the call and closes `file`, which the caller may need unused. Returns the answer.
    fn perform(&self, pending: &PendingCall, file: Option<OwnedFd>, mut line: CallLine) -> Answer {
        if file.is_none() && pending.call != Call::Sync {
            let syncs = self.syncs();
            if !syncs.has_ended {
                self.record.write(&line);
            }
            return Answer::Continue;
        }
        // The looks are at the processes of the command.
        let is_of_command = line.would == Would::Hold && line.step.is_none();
        let waits = is_of_command.then(|| self.sampler.enter(line.thread));
        line.at = self.record.micros();
        let id: CallId = (pending.notification.id, line.step);
        self.syncs().begin(id, line);
        let done = sync(pending, file.as_ref());
        // Before the answer: the command may end once its last call is answered.
        self.syncs().finish(id, done.err().map(Errno::raw_os_error));
        drop(waits);
        drop(file);
        done.map_or_else(|error| Answer::Errno(error.raw_os_error()), |()| Answer::Value(0))
    }

    fn describe(
        &self,
        pending: &PendingCall,
        file: Option<&OwnedFd>,
        would: Would,
        step: Option<StepOf>,
    ) -> CallLine {
        let thread = pending.notification.thread;
        let callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = { callers }.find(thread, step.map(|step| step.init));
        let path = match file {
            Some(file) => link(&format!("/proc/self/fd/{}", file.as_raw_fd())),
            None => named(pending),
        };
        let bytes = file.filter(|_| would == Would::Hold);
        CallLine {
            call: pending.call.name(),
            at: self.record.micros(),
            thread,
            caller,
            file: path,
            bytes: bytes.and_then(unwritten),
            wait: None,
            errno: None,
            would,
            step: step.map(|step| step.number),
        }
    }

    fn syncs(&self) -> MutexGuard<'_, Syncs> {
        self.syncs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the end of the command, and the waits until now for syncs that go on. Calls of
    /// processes that outlive the command are not recorded.
    pub(crate) fn end(&self, ending: Ending) {
        let mut syncs = self.syncs();
        syncs.has_ended = true;
        for line in syncs.take_all(|_| true) {
            self.record.write(&line);
        }
        let Looks { count: looks, alone, lost } = self.sampler.looks();
        let ((triggers, emulated, clients), at) = (self.programs.found(), self.record.micros());
        let last = LastLine { end: ending, at, looks, alone, lost, triggers, emulated, clients };
        self.record.write(&last);
        let _ = self.record.writer().flush();
    }
}

/// Files larger than this are not asked for their unwritten bytes: the kernel looks at each page.
const LARGE: u64 = 256 << 20;
/// `OVERLAYFS_SUPER_MAGIC` of the kernel (linux/magic.h).
const OVERLAY: rustix::fs::FsWord = 0x794c_7630;

fn unwritten(file: &OwnedFd) -> Option<u64> {
    // The pages are those of the layer's file.
    if rustix::fs::fstatfs(file).ok()?.f_type == OVERLAY {
        return None;
    }
    let stat = rustix::fs::fstat(file).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    let is_small = u64::try_from(stat.st_size).is_ok_and(|size| size <= LARGE);
    (is_file && is_small).then(|| file_sync::unwritten_bytes(file.as_fd())).flatten()
}

/// Does the sync of `pending` on `file`.
fn sync(pending: &PendingCall, file: Option<&OwnedFd>) -> Result<(), Errno> {
    match (pending.call, file) {
        (Call::Fsync, Some(file)) => rustix::fs::fsync(file),
        (Call::Fdatasync, Some(file)) => rustix::fs::fdatasync(file),
        (Call::Syncfs, Some(file)) => rustix::fs::syncfs(file),
        (Call::SyncFileRange, Some(file)) => {
            let (offset, length, flags) =
                args::sync_file_range(pending.abi, &pending.notification.args);
            let done = file_sync::sync_file_range(file.as_fd(), offset, length, flags);
            done.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
        _ => {
            rustix::fs::sync();
            Ok(())
        }
    }
}

/// Returns the file of a call that is left to the kernel, as the caller names it.
fn named(pending: &PendingCall) -> Option<String> {
    let thread = pending.notification.thread;
    let path = |index: usize| {
        let path = Memory::open(thread).ok()?.path(pending.notification.args[index]).ok()?;
        Some(path.to_string_lossy().into_owned())
    };
    match pending.call {
        Call::Open | Call::Umount => path(0),
        Call::Openat | Call::Openat2 => path(1),
        Call::Preadv2 | Call::Pwritev2 | Call::Ioctl => {
            link(&format!("/proc/{thread}/fd/{}", args::descriptor(pending.notification.args[0])))
        }
        _ => None,
    }
}

fn link(path: &str) -> Option<String> {
    Some(std::fs::read_link(path).ok()?.to_string_lossy().into_owned())
}
