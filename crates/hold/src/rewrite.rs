//! Has the kernel do a call without its sync flag, as the caller itself.
//!
//! The caller is traced for the length of this one call: it restarts the call,
//! is stopped at its entry, gets the changed arguments, and at the exit its own
//! back. A signal that comes between is delivered, and the call is then notified
//! again; that time the caller's signals are held off until it is at the entry,
//! so that a storm of them cannot keep it from ever getting there. Where tracing
//! is not allowed (a debugger is there already) the call passes as it is.

use crate::caller::Memory;
use crate::policy::{Change, Patch, PendingCall};
use crate::tracee_locks::TraceeLock;
use std::io;
use std::path::Path;
use std::time::Duration;
use synconce_filter::Abi;
use synconce_sys::handover::{Handover, MaskNote};
use synconce_sys::notify::{Answer, Listener};
use synconce_sys::trace::{Convention, Mask, Registers, Stop, Tracee};

/// What became of a call that was to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rewritten {
    /// It was done without the flag; what it returned.
    Done(i64),
    /// It was done as it is.
    Passed,
    /// It was not done, or is counted elsewhere: the caller is gone, or will
    /// make the call again.
    Dropped,
    /// The same, because of a signal.
    Disturbed,
    /// The same, and the caller is traced until the calling thread ends: it need
    /// not come to a stop before somebody else answers it.
    Left,
}

/// Between two tries.
const MOMENT: Duration = Duration::from_micros(200);

/// Where a thread came to that was to enter its call again.
enum Entered {
    Call,
    /// A signal comes first, or a stop (0).
    Disturbed(i32),
}

/// A call that is to be done without its sync flag.
pub(crate) struct Rewrite<'a> {
    pub listener: &'a Listener,
    pub waiting: &'a PendingCall,
    pub change: &'a Change,
    /// Whether the caller gets its signals no earlier than at the call's entry.
    pub shielded: bool,
    /// The run's command, whose end is left to the loop.
    pub command: u32,
}

impl Rewrite<'_> {
    /// Changes and finishes the call. Unless `begin` says yes at its entry, it is
    /// left as it is. The calling thread traces the caller meanwhile, which it has
    /// claimed, and must trace nothing else.
    pub(crate) fn perform(&self, claim: &TraceeLock<'_>, begin: &dyn Fn() -> bool) -> Rewritten {
        let notification = &self.waiting.notification;
        if !self.listener.is_valid(notification.id) {
            return Rewritten::Dropped;
        }
        let Ok(tracee) = seize(notification.thread) else {
            // It may be gone, or traced by somebody else: then the kernel does the call.
            return self.pass();
        };
        if !restart(self.listener, self.waiting, &tracee).unwrap_or(false) {
            return Rewritten::Left;
        }
        let entered = enter(&tracee, self.listener.handover().filter(|_| self.shielded));
        let (rewritten, signal) = match entered {
            Ok(Entered::Call) => {
                let done = perform(&tracee, claim, self.waiting, self.change, begin);
                (done.unwrap_or(Rewritten::Dropped), 0)
            }
            Ok(Entered::Disturbed(signal)) => (Rewritten::Disturbed, signal),
            Err(_) => (Rewritten::Dropped, 0),
        };
        // One that job control has stopped stays stopped.
        tracee.let_go(signal, self.command);
        rewritten
    }

    /// Lets the kernel do the call as it is.
    pub(crate) fn pass(&self) -> Rewritten {
        match self.listener.answer(self.waiting.notification.id, Answer::Continue) {
            Ok(true) => Rewritten::Passed,
            _ => Rewritten::Dropped,
        }
    }
}

/// Starts to trace `thread`. One of our threads that has just left it may not
/// have ended yet.
fn seize(thread: u32) -> io::Result<Tracee> {
    loop {
        match Tracee::seize(thread) {
            Err(_) if is_traced_by_us(thread) => std::thread::sleep(MOMENT),
            other => return other,
        }
    }
}

fn is_traced_by_us(thread: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| Path::new("/proc/self/task").join(tracer.trim()).exists())
}

/// Makes the caller stop, and then make its call again; `Ok(false)` when the
/// thread is not, or no longer, the caller.
fn restart(listener: &Listener, waiting: &PendingCall, tracee: &Tracee) -> io::Result<bool> {
    let id = waiting.notification.id;
    let valid = listener.is_valid(id);
    tracee.interrupt()?;
    Ok(valid && listener.answer(id, Answer::Restart)?)
}

/// Lets the thread go on to the entry of a call; with `shield` its signals are
/// held off until it is there, and its mask is noted there meanwhile.
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

/// Blocks the signals of a stopped thread, if its mask can be noted for the case
/// that we are killed before it gets it back.
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
    waiting: &PendingCall,
    change: &Change,
    begin: &dyn Fn() -> bool,
) -> io::Result<Rewritten> {
    let mut registers = tracee.registers()?;
    if !is_same_call(&mut registers, waiting) || !begin() {
        return Ok(Rewritten::Dropped);
    }
    let memory = Memory::open(waiting.notification.thread, true)?;
    let applied = patch(change, &memory);
    if let Some((index, bits)) = change.argument.filter(|_| applied) {
        *registers.argument(convention(waiting.abi), index) &= !bits;
        tracee.set_registers(&registers)?;
    }
    // It is notified again when its arguments say so still, and passes then.
    let exited = claim.call(|| leave(tracee));
    if applied {
        put_back(&change.patches, &memory);
    }
    if !exited? {
        return Ok(Rewritten::Dropped);
    }
    let mut registers = tracee.registers()?;
    if let Some((index, _)) = change.argument {
        *registers.argument(convention(waiting.abi), index) = waiting.notification.args[index];
        tracee.set_registers(&registers)?;
    }
    Ok(if applied { Rewritten::Done(registers.returned()) } else { Rewritten::Dropped })
}

/// Lets the thread do the call that it is entering; `Ok(false)` when it came
/// to another.
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

fn is_same_call(registers: &mut Registers, waiting: &PendingCall) -> bool {
    let notification = &waiting.notification;
    registers.number() == notification.number
        && notification
            .args
            .iter()
            .enumerate()
            .all(|(index, value)| registers.argument(convention(waiting.abi), index) == value)
}

fn convention(abi: Abi) -> Convention {
    if abi == Abi::I386 { Convention::I386 } else { Convention::Native }
}

/// Makes every patch, or none.
fn patch(change: &Change, memory: &Memory) -> bool {
    for (made, patch) in change.patches.iter().enumerate() {
        // Another thread of the caller may have changed it since, or executed.
        let same = memory.holds(patch.address, &patch.old);
        if !same || memory.patch(patch.address, &patch.new).is_err() {
            put_back(&change.patches[..made], memory);
            return false;
        }
    }
    true
}

/// Puts back what is still as we left it: once the kernel has read a request, its
/// memory may be used for the next one.
fn put_back(patches: &[Patch], memory: &Memory) {
    for patch in patches.iter().filter(|patch| memory.holds(patch.address, &patch.new)) {
        // It could be written a moment ago; if it was unmapped since, nothing is to be put back.
        let _ = memory.patch(patch.address, &patch.old);
    }
}
