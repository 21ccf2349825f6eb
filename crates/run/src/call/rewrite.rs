//! Makes the kernel do a call without its sync flag, as the caller itself.
//!
//! The caller is traced for the length of this one call. It restarts the call, is stopped at
//! the entry, gets the changed arguments, and at the exit its own arguments back. From its first
//! stop to the entry its signals are blocked: otherwise a handler could run, and the call be
//! notified again or fail with EINTR. Where tracing is not allowed (a debugger is attached
//! already) the call passes unchanged.

use crate::call::caller::Memory;
use crate::call::policy::{CallChange, Patch, PendingCall};
use crate::call::tracee_locks::TraceeLock;
use std::io;
use std::path::Path;
use std::time::Duration;
use synconce_filter::Abi;
use synconce_sys::handover::{Handover, MaskNote};
use synconce_sys::notify::{Answer, Listener};
use synconce_sys::procfs::status_field;
use synconce_sys::registers::{Convention, Registers};
use synconce_sys::trace::{Mask, Stop, Tracee};

/// The result of changing a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rewritten {
    /// The call was done without the flag, and returned this value.
    Done(i64),
    /// The call was done unchanged.
    Passed,
    /// The call was not done, or is counted elsewhere: the caller has exited, or will repeat
    /// the call.
    Dropped,
    /// Like `Dropped`, and the caller stays traced until the calling thread exits: the caller
    /// may not stop before another thread answers its call.
    Left,
}

/// The pause between two attempts.
const MOMENT: Duration = Duration::from_micros(200);

/// The stop that a thread reached on the way to repeat its call.
enum Entered {
    Call,
    /// A signal arrived first, or a job-control stop (0).
    Disturbed(i32),
}

/// A call that is to be done without its sync flag.
pub(crate) struct Rewrite<'a> {
    pub listener: &'a Listener,
    pub pending: &'a PendingCall,
    pub change: &'a CallChange,
    /// The run's command, whose exit status is left to the supervisor's loop.
    pub command: u32,
}

impl Rewrite<'_> {
    /// Changes and finishes the call. If `begin` returns false at the entry, the call is left
    /// unchanged. The calling thread traces the caller, must hold its lock `claim`, and must
    /// trace no other thread.
    pub(crate) fn perform(&self, claim: &TraceeLock<'_>, begin: &dyn Fn() -> bool) -> Rewritten {
        let notification = &self.pending.notification;
        if !self.listener.is_valid(notification.id) {
            return Rewritten::Dropped;
        }
        let Ok(tracee) = seize(notification.thread) else {
            // The caller has exited, or another process traces it: then the kernel does the
            // call.
            return self.pass();
        };
        if !self.listener.is_valid(notification.id) || tracee.interrupt().is_err() {
            return Rewritten::Left;
        }
        let entered = enter(&tracee, self.listener.handover());
        let (rewritten, signal) = match entered {
            Ok(Entered::Call) => {
                let done = perform(&tracee, claim, self.pending, self.change, begin);
                (done.unwrap_or(Rewritten::Dropped), 0)
            }
            Ok(Entered::Disturbed(signal)) => (Rewritten::Dropped, signal),
            Err(_) => (Rewritten::Dropped, 0),
        };
        // A thread that job control has stopped stays stopped.
        tracee.let_go(signal, self.command);
        rewritten
    }

    /// Lets the kernel do the call unchanged.
    pub(crate) fn pass(&self) -> Rewritten {
        match self.listener.answer(self.pending.notification.id, Answer::Continue) {
            Ok(true) => Rewritten::Passed,
            _ => Rewritten::Dropped,
        }
    }
}

/// Starts to trace `thread`. Retries while an abandoned worker thread still traces it: that
/// worker may not have exited yet.
fn seize(thread: u32) -> io::Result<Tracee> {
    loop {
        match Tracee::seize(thread) {
            Err(_) if is_traced_by_us(thread) => std::thread::sleep(MOMENT),
            // The worker may have exited between the two looks.
            Err(_) => return Tracee::seize(thread),
            tracee => return tracee,
        }
    }
}

fn is_traced_by_us(thread: u32) -> bool {
    let tracer = status_field(thread, "TracerPid:");
    tracer.is_some_and(|tracer| Path::new("/proc/self/task").join(tracer).exists())
}

/// Lets the thread, which has an interrupt pending, stop and repeat its call, up to the entry.
/// The interrupt ends the wait for an answer (`ERESTARTSYS`), as a signal would. The thread's
/// signals are blocked until the entry, and its mask is recorded in `shield` for that time.
fn enter(tracee: &Tracee, shield: Option<&Handover>) -> io::Result<Entered> {
    let mut noted = None;
    let entered = loop {
        match tracee.wait()? {
            Stop::Entry => break Entered::Call,
            Stop::Interrupt | Stop::Exit => {
                if let (Some(handover), None) = (shield, &noted) {
                    noted = block_signals(tracee, handover)?;
                }
                tracee.run_to_syscall(0)?;
            }
            Stop::Signal(signal) => break Entered::Disturbed(signal),
            Stop::Group => break Entered::Disturbed(0),
            Stop::Gone => return Err(io::ErrorKind::NotFound.into()),
        }
    };
    if let Some((mask, _note)) = noted {
        tracee.set_mask(mask)?;
    }
    Ok(entered)
}

/// Blocks the signals of a stopped thread, if its mask can be recorded: if the supervisor is
/// killed, the frontend restores the mask.
fn block_signals<'a>(
    tracee: &Tracee,
    handover: &'a Handover,
) -> io::Result<Option<(Mask, MaskNote<'a>)>> {
    let mask = tracee.mask()?;
    let Some(note) = handover.note_mask(tracee.thread(), mask) else { return Ok(None) };
    tracee.set_mask(Mask::ALL)?;
    Ok(Some((mask, note)))
}

fn perform(
    tracee: &Tracee,
    claim: &TraceeLock<'_>,
    pending: &PendingCall,
    change: &CallChange,
    begin: &dyn Fn() -> bool,
) -> io::Result<Rewritten> {
    // A sandbox may forbid writes to /proc (landlock(7)). If the patches cannot be applied, the
    // call keeps its flag: it is notified a second time, and passes because the thread is traced.
    // Opened before the registers are read, which succeeds only if the thread is still stopped. So
    // the memory is that of the stopped thread, and not that of a program that another thread has
    // executed under the same id.
    let memory = (!change.patches.is_empty())
        .then(|| Memory::open_writable(pending.notification.thread).ok())
        .flatten();
    let mut registers = tracee.registers()?;
    if !is_same_call(&registers, pending) || !begin() {
        return Ok(Rewritten::Dropped);
    }
    let applied = change.patches.is_empty()
        || memory.as_ref().is_some_and(|memory| patch(&change.patches, memory));
    if let Some((index, bits)) = change.argument.filter(|_| applied) {
        let convention = convention(pending.abi);
        registers.set_argument(convention, index, registers.argument(convention, index) & !bits);
        tracee.set_registers(&registers)?;
    }
    // If the call's arguments still require it, the call is notified again, and passes then.
    let exited = claim.call(|| leave(tracee));
    if let Some(memory) = memory.filter(|_| applied) {
        put_back(&change.patches, &memory);
    }
    if !exited? {
        return Ok(Rewritten::Dropped);
    }
    let mut registers = tracee.registers()?;
    if let Some((index, _)) = change.argument {
        let own = pending.notification.args[index];
        registers.set_argument(convention(pending.abi), index, own);
        tracee.set_registers(&registers)?;
    }
    Ok(if applied { Rewritten::Done(registers.returned()) } else { Rewritten::Dropped })
}

/// Lets the thread do the call that it is entering. Returns `Ok(false)` if it entered another
/// call.
fn leave(tracee: &Tracee) -> io::Result<bool> {
    tracee.run_to_syscall(0)?;
    loop {
        match tracee.wait()? {
            Stop::Exit => return Ok(true),
            Stop::Entry => return Ok(false),
            Stop::Interrupt | Stop::Group => tracee.run_to_syscall(0)?,
            Stop::Signal(signal) => tracee.run_to_syscall(signal)?,
            Stop::Gone => return Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn is_same_call(registers: &Registers, pending: &PendingCall) -> bool {
    let notification = &pending.notification;
    registers.number() == notification.number
        && notification
            .args
            .iter()
            .enumerate()
            .all(|(index, value)| registers.argument(convention(pending.abi), index) == *value)
}

fn convention(abi: Abi) -> Convention {
    if abi.is_32_bit() { Convention::Compat } else { Convention::Native }
}

/// Applies every patch, or none.
fn patch(patches: &[Patch], memory: &Memory) -> bool {
    for (made, patch) in patches.iter().enumerate() {
        // Another thread of the caller may have changed the memory, or called execve(2).
        let same = memory.holds(patch.address, &patch.old);
        if !same || memory.patch(patch.address, &patch.new).is_err() {
            put_back(&patches[..made], memory);
            return false;
        }
    }
    true
}

/// Restores the bytes that still equal the patch: once the kernel has read a request, the
/// caller may reuse its memory for the next request.
fn put_back(patches: &[Patch], memory: &Memory) {
    for patch in patches.iter().filter(|patch| memory.holds(patch.address, &patch.new)) {
        // If the memory was unmapped since it was patched, nothing has to be restored.
        let _ = memory.patch(patch.address, &patch.old);
    }
}
