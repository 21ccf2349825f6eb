//! Has the kernel do a call without its sync flag, as the caller itself.
//!
//! The caller is traced for the length of this one call: it restarts the call,
//! is stopped at its entry, gets the changed arguments, and at the exit its own
//! back. A signal handler that comes between simply runs; the call is then
//! notified again. Where tracing is not allowed (a debugger is there already)
//! the call passes as it is.

use crate::answers::{Change, Patch, Waiting};
use crate::caller::Memory;
use std::io;
use synconce_filter::Abi;
use synconce_sys::notify::{Answer, Listener};
use synconce_sys::trace::{Convention, Registers, Stop, Tracee};

/// What became of a call that was to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rewritten {
    /// It was done without the flag; what it returned.
    Done(i64),
    /// It was done as it is.
    Passed,
    /// It was not done: the caller is gone, or will make the call again.
    Dropped,
}

/// Changes and finishes the call `waiting`. The calling thread traces it
/// meanwhile, and must trace nothing else.
pub(crate) fn rewrite(listener: &Listener, waiting: &Waiting, change: &Change) -> Rewritten {
    let notification = &waiting.notification;
    let Ok(tracee) = Tracee::seize(notification.thread) else {
        // It may be gone, or traced by somebody else: then the kernel does the call.
        return match listener.answer(notification.id, Answer::Continue) {
            Ok(true) => Rewritten::Passed,
            _ => Rewritten::Dropped,
        };
    };
    let rewritten = restart(listener, waiting, &tracee)
        .and_then(|restarted| match restarted {
            true => perform(&tracee, waiting, change),
            false => run_to(&tracee, Stop::Interrupt).map(|_| Rewritten::Dropped),
        })
        .unwrap_or(Rewritten::Dropped);
    // An error means that the thread is gone, and then so is the trace.
    let _ = tracee.detach(0);
    rewritten
}

/// Makes the caller stop, and then make its call again; `Ok(false)` when the
/// thread is not, or no longer, the caller. It will stop in any case.
fn restart(listener: &Listener, waiting: &Waiting, tracee: &Tracee) -> io::Result<bool> {
    let id = waiting.notification.id;
    let valid = listener.is_valid(id);
    tracee.interrupt()?;
    Ok(valid && listener.answer(id, Answer::Restart)?)
}

fn perform(tracee: &Tracee, waiting: &Waiting, change: &Change) -> io::Result<Rewritten> {
    if !run_to(tracee, Stop::Entry)? {
        return Ok(Rewritten::Dropped);
    }
    let mut registers = tracee.registers()?;
    if !is_same_call(&mut registers, waiting) {
        return Ok(Rewritten::Dropped);
    }
    let memory = Memory::open(waiting.notification.thread, true)?;
    let applied = patch(change, &memory);
    if let Some((index, bits)) = change.argument.filter(|_| applied) {
        *registers.argument(convention(waiting.abi), index) &= !bits;
        tracee.set_registers(&registers)?;
    }
    let exited = run_to(tracee, Stop::Exit)?;
    if applied {
        put_back(&change.patches, &memory);
    }
    if !exited {
        return Ok(Rewritten::Dropped);
    }
    let mut registers = tracee.registers()?;
    if let Some((index, _)) = change.argument {
        *registers.argument(convention(waiting.abi), index) = waiting.notification.args[index];
        tracee.set_registers(&registers)?;
    }
    Ok(if applied { Rewritten::Done(registers.returned()) } else { Rewritten::Passed })
}

/// Lets the thread run to the stop `wanted`; `Ok(false)` when it came to
/// another call. Signals are delivered, and job control is obeyed, meanwhile.
fn run_to(tracee: &Tracee, wanted: Stop) -> io::Result<bool> {
    if wanted == Stop::Exit {
        tracee.run_to_syscall(0)?;
    }
    loop {
        match tracee.wait()? {
            stop if stop == wanted => return Ok(true),
            // A call that is not the one; it goes on when the trace ends.
            Stop::Entry => return Ok(false),
            Stop::Exit | Stop::Interrupt => tracee.run_to_syscall(0)?,
            Stop::Signal(signal) => tracee.run_to_syscall(signal)?,
            Stop::Group => tracee.listen()?,
            Stop::Gone => return Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn is_same_call(registers: &mut Registers, waiting: &Waiting) -> bool {
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
        if memory.patch(patch.address, &patch.new).is_err() {
            put_back(&change.patches[..made], memory);
            return false;
        }
    }
    true
}

fn put_back(patches: &[Patch], memory: &Memory) {
    for patch in patches {
        // It could be written a moment ago; if it was unmapped since, nothing is to be put back.
        let _ = memory.patch(patch.address, &patch.old);
    }
}
