//! What the frontend needs to take over from a killed supervisor.
//!
//! A socket that both processes have open contains the listener. Shared memory has the pid of the
//! command; the last call that the supervisor received, because the kernel never delivers a call
//! twice; the signal masks to restore; and what the supervisor does with the markers, because a
//! frozen disk makes these steps wait.

use crate::trace::Mask;
use crate::{check, descriptors};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// What the frontend and the supervisor share. Created before the supervisor is forked.
#[derive(Debug)]
pub struct Takeover {
    /// The shared memory.
    pub handover: Arc<Handover>,
    /// The socket through which the listener is passed.
    pub mailbox: Mailbox,
}

impl Takeover {
    /// Creates the memory and the socket.
    ///
    /// # Errors
    /// Those of [`Handover::new`] and [`Mailbox::new`].
    pub fn new() -> io::Result<Self> {
        Ok(Self { handover: Arc::new(Handover::new()?), mailbox: Mailbox::new()? })
    }
}

/// Memory that this process shares with the processes that it forks later.
#[derive(Debug)]
pub struct Handover {
    memory: NonNull<HandoverMemory>,
    /// Locked by the thread that receives a call.
    receiving: Mutex<()>,
}

/// The socket through which the listener is passed to the frontend. Readable once the listener
/// is in it. The frontend polls it only after the supervisor has exited, so the start of a
/// command wakes no other process.
#[derive(Debug)]
pub struct Mailbox {
    sender: OwnedFd,
    receiver: OwnedFd,
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

impl Mailbox {
    /// Creates an empty mailbox.
    ///
    /// # Errors
    /// Those of `socketpair(2)`.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (receiver, sender) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(Self { sender, receiver })
    }

    /// Puts a copy of `listener` into the mailbox. Async-signal-safe.
    ///
    /// # Errors
    /// Those of sendmsg(2): `ETOOMANYREFS` if the user has too many descriptors in flight.
    pub(crate) fn leave(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        Ok(descriptors::send(&self.sender, listener)?)
    }

    /// Takes the listener out of the mailbox, if there is one.
    pub fn take(&self) -> Option<OwnedFd> {
        descriptors::receive(&self.receiver, RecvFlags::DONTWAIT).ok()?
    }
}

/// What the supervisor does that waits for the disk of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MarkerStep {
    /// Nothing.
    None,
    /// It writes the markers, before the command starts.
    Arms,
    /// It may not start the command: the user does not wait for the markers.
    GivenUp,
    /// It removes the markers: the command has ended, and the commit is over.
    Clears,
}

/// Every field is valid when zeroed.
struct HandoverMemory {
    /// A [`MarkerStep`].
    marker_step: AtomicU32,
    /// The pid of the command; 0 until it starts.
    command: AtomicU32,
    /// The id of the call before the one in `received`.
    last_call: AtomicU64,
    /// The buffer into which the kernel writes a received call.
    received: UnsafeCell<libc::seccomp_notif>,
    masks: [Noted; MASKS],
}

/// A thread (0: none, [`TAKEN`]: being written) and its original mask.
struct Noted {
    thread: AtomicU64,
    mask: AtomicU64,
}

/// The number of masks that can be recorded at once.
const MASKS: usize = 64;
const TAKEN: u64 = u64::MAX;

/// A recorded mask; dropping this value deletes the record.
#[derive(Debug)]
pub struct MaskNote<'a>(&'a AtomicU64);

impl Drop for MaskNote<'_> {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
    }
}

// SAFETY: the mapping lives until the drop, and is accessed by atomics, or under the lock.
unsafe impl Send for Handover {}
// SAFETY: as above.
unsafe impl Sync for Handover {}

/// The number of ids to try on either side of the last id. The kernel assigns ids in order and
/// delivers calls in order, but some callers die before delivery, and some calls are answered
/// late.
const REACH: u64 = 16 * 1024;

impl Handover {
    /// Creates memory without a call and without masks.
    ///
    /// # Errors
    /// `ENOMEM` of mmap(2).
    pub fn new() -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of whole pages, zeroed and aligned for any atomic.
        let pages = unsafe {
            libc::mmap(ptr::null_mut(), size_of::<HandoverMemory>(), protection, flags, -1, 0)
        };
        if pages == libc::MAP_FAILED {
            check(-1)?;
        }
        let memory = NonNull::new(pages.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, receiving: Mutex::new(()) })
    }

    fn shared(&self) -> &HandoverMemory {
        // SAFETY: the mapping exists until the drop, and zero is a valid `HandoverMemory`.
        unsafe { self.memory.as_ref() }
    }

    fn received_id(&self) -> &AtomicU64 {
        // SAFETY: an aligned integer; without the lock, only this atomic reads it.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.shared().received.get()).id) }
    }

    /// Records the pid of the command, which the calling process is about to execute, or
    /// `None` if it cannot be executed. Async-signal-safe.
    pub(crate) fn note_command(&self, pid: Option<u32>) {
        self.shared().command.store(pid.unwrap_or(0), SeqCst);
    }

    /// Returns the pid of the command, from just before its execution. The supervisor may have
    /// reaped the command since.
    pub fn command(&self) -> Option<u32> {
        Some(self.shared().command.load(SeqCst)).filter(|pid| *pid != 0)
    }

    /// Changes the step `from` to `to`. Returns whether `from` was the step: the two processes
    /// change the step at the same time.
    pub fn change_marker_step(&self, from: MarkerStep, to: MarkerStep) -> bool {
        let step = &self.shared().marker_step;
        step.compare_exchange(from as u32, to as u32, SeqCst, SeqCst).is_ok()
    }

    /// Whether `step` is the step of the supervisor now.
    pub fn is_at(&self, step: MarkerStep) -> bool {
        self.shared().marker_step.load(SeqCst) == step as u32
    }

    /// Receives a call by `receive`, which gets zeroed memory for the kernel to write to. This
    /// is the shared memory: the kernel itself records the id, so that a kill between the
    /// system call and a copy of the id cannot lose it.
    ///
    /// # Errors
    /// Those of `receive`.
    pub(crate) fn receive(
        &self,
        receive: impl FnOnce(*mut libc::seccomp_notif) -> io::Result<()>,
    ) -> io::Result<libc::seccomp_notif> {
        let _receiving = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.received_id().load(SeqCst);
        if before != 0 {
            self.shared().last_call.store(before, SeqCst);
        }
        // The old id is stored before it is overwritten.
        fence(SeqCst);
        let call = self.shared().received.get();
        // SAFETY: this thread has the lock, and zero is valid for plain integers.
        unsafe { call.write_bytes(0, 1) };
        receive(call)?;
        // SAFETY: this thread has the lock, and the kernel has written the whole structure.
        Ok(unsafe { call.read() })
    }

    /// Returns ids, one of which may belong to a call that was received and not answered.
    /// Returns none before the first call.
    pub fn candidates(&self) -> impl Iterator<Item = u64> {
        let last = match self.received_id().load(SeqCst) {
            0 => self.shared().last_call.load(SeqCst),
            id => id,
        };
        let count = if last == 0 { 0 } else { 2 * REACH };
        (0..count).map(move |offset| last.wrapping_sub(REACH).wrapping_add(offset))
    }

    /// Records that `thread` is to get `mask` back. Returns `None` if the table is full.
    pub fn note_mask(&self, thread: u32, mask: Mask) -> Option<MaskNote<'_>> {
        let free = |noted: &&Noted| noted.thread.compare_exchange(0, TAKEN, SeqCst, SeqCst).is_ok();
        let noted = self.shared().masks.iter().find(free)?;
        noted.mask.store(mask.bits(), SeqCst);
        noted.thread.store(u64::from(thread), SeqCst);
        Some(MaskNote(&noted.thread))
    }

    /// Returns the threads whose masks were not restored, and their masks.
    pub fn masks(&self) -> Vec<(u32, Mask)> {
        let noted = self.shared().masks.iter().filter_map(|noted| {
            let thread = u32::try_from(noted.thread.load(SeqCst)).ok().filter(|id| *id != 0)?;
            Some((thread, Mask::of_bits(noted.mask.load(SeqCst))))
        });
        noted.collect()
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        // SAFETY: unmaps the mapping of `new`, to which no reference is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), size_of::<HandoverMemory>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_noted_until_its_note_is_dropped() {
        let handover = Handover::new().unwrap();
        let first = handover.note_mask(7, Mask::of_bits(0x11)).unwrap();
        let second = handover.note_mask(8, Mask::of_bits(0x22)).unwrap();
        drop(first);
        assert_eq!(handover.masks(), [(8, Mask::of_bits(0x22))]);
        drop(second);
        assert_eq!(handover.masks(), []);
    }

    #[test]
    fn no_mask_is_noted_when_there_is_no_room() {
        let handover = Handover::new().unwrap();
        let notes: Vec<_> =
            (1..=64).map(|thread| handover.note_mask(thread, Mask::ALL).unwrap()).collect();
        assert!(handover.note_mask(99, Mask::ALL).is_none());
        drop(notes);
        assert!(handover.note_mask(99, Mask::ALL).is_some());
    }

    #[test]
    fn there_are_no_candidates_before_the_first_call() {
        let handover = Handover::new().unwrap();
        assert_eq!(handover.candidates().count(), 0);
        let gone = |_| Err(io::Error::from_raw_os_error(libc::ENOENT));
        assert!(handover.receive(gone).is_err());
        assert_eq!(handover.candidates().count(), 0);
        let receive = |call: *mut libc::seccomp_notif| {
            // SAFETY: the memory to which the kernel would write.
            unsafe { (*call).id = 70_000 };
            Ok(())
        };
        assert_eq!(handover.receive(receive).unwrap().id, 70_000);
        assert!(handover.candidates().any(|id| id == 70_000));
        assert!(handover.receive(gone).is_err());
        assert!(handover.candidates().any(|id| id == 70_000), "it may wait for its answer still");
    }
}
