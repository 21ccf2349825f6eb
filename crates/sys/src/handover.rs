//! What the front process needs to take over from a killed supervisor: the listener, in
//! a socket that both have; and in memory that both share the pid of the command, the last
//! call that was received, which the kernel never hands out again, and the signal masks
//! that were to be given back.

use crate::check;
use crate::notify::Listener;
use crate::trace::Mask;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::cell::UnsafeCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// What the front process and the supervisor, which it forks later, both have.
#[derive(Debug)]
pub struct Takeover {
    /// The memory that they share.
    pub handover: Arc<Handover>,
    /// Where the listener comes from.
    pub mailbox: Mailbox,
}

impl Takeover {
    /// Makes both.
    ///
    /// # Errors
    /// Those of [`Handover::new`] and [`Mailbox::new`].
    pub fn new() -> io::Result<Self> {
        Ok(Self { handover: Arc::new(Handover::new()?), mailbox: Mailbox::new()? })
    }
}

/// Memory that this process and those that it forks later share.
#[derive(Debug)]
pub struct Handover {
    memory: NonNull<Shared>,
    /// Held by the thread that receives a call.
    receiving: Mutex<()>,
}

/// Where the listener is left for the front process. Readable once it is there. Until then
/// and until it is needed nothing polls it: the start of a command wakes no other process.
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
    /// Makes it; there is no listener yet.
    ///
    /// # Errors
    /// Those of `socketpair(2)`.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (receiver, sender) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(Self { sender, receiver })
    }

    /// Leaves a copy of `listener` to be taken. Async-signal-safe.
    ///
    /// # Errors
    /// Those of `sendmsg(2)`: `ETOOMANYREFS` when the user has too many descriptors in
    /// flight.
    pub(crate) fn leave(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [listener];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&self.sender, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Takes the listener, if it is there.
    pub fn take(&self) -> Option<Listener> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let (flags, mut byte) = (RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT, [0]);
        recvmsg(&self.receiver, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags).ok()?;
        ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next().map(Listener::from),
            _ => None,
        })
    }
}

/// Every field is valid when zeroed.
struct Shared {
    /// The pid of the command; 0 as long as it has not started.
    command: AtomicU32,
    /// The call before the one in `received`.
    last_call: AtomicU64,
    /// Where the kernel writes the call that it hands out.
    received: UnsafeCell<libc::seccomp_notif>,
    masks: [Noted; MASKS],
}

/// A thread (0: none, [`TAKEN`]: being written) and the mask that it had.
struct Noted {
    thread: AtomicU64,
    mask: AtomicU64,
}

/// Masks that can be noted at once.
const MASKS: usize = 64;
const TAKEN: u64 = u64::MAX;

/// A mask that is noted until this is dropped.
#[derive(Debug)]
pub struct MaskNote<'a>(&'a AtomicU64);

impl Drop for MaskNote<'_> {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
    }
}

// SAFETY: what it points to lives until the drop and is only used atomically.
unsafe impl Send for Handover {}
// SAFETY: as above.
unsafe impl Sync for Handover {}

/// Ids to try on either side of the last one. Ids are given in order, and calls
/// are received in order, but some callers die before, and some answers take
/// their time.
const REACH: u64 = 16 * 1024;

impl Handover {
    /// Makes it; there is no call yet, and no mask.
    ///
    /// # Errors
    /// `ENOMEM` of `mmap(2)`.
    pub fn new() -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of whole pages, zeroed and aligned for any atomic.
        let pages =
            unsafe { libc::mmap(ptr::null_mut(), size_of::<Shared>(), protection, flags, -1, 0) };
        if pages == libc::MAP_FAILED {
            check(-1)?;
        }
        let memory = NonNull::new(pages.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, receiving: Mutex::new(()) })
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the mapping is ours until the drop, and zero is a valid `Shared`.
        unsafe { self.memory.as_ref() }
    }

    fn received_id(&self) -> &AtomicU64 {
        // SAFETY: an aligned integer; without the lock it is read by this alone.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.shared().received.get()).id) }
    }

    /// Notes the pid of the command, which the calling process is about to execute;
    /// `None` when it cannot be executed. Async-signal-safe.
    pub(crate) fn note_command(&self, pid: Option<u32>) {
        self.shared().command.store(pid.unwrap_or(0), SeqCst);
    }

    /// The pid of the command, from just before its execution on. The supervisor may
    /// have reaped it since.
    pub fn command(&self) -> Option<u32> {
        Some(self.shared().command.load(SeqCst)).filter(|pid| *pid != 0)
    }

    /// Receives a call by `receive`, which is given zeroed memory for the kernel to write
    /// to. That is the shared memory: the kernel's own note of the id cannot be lost by a
    /// kill, as one that is made after the system call could.
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
        // Only now may the id go.
        fence(SeqCst);
        let call = self.shared().received.get();
        // SAFETY: the lock is ours, and zero is valid for plain integers.
        unsafe { call.write_bytes(0, 1) };
        receive(call)?;
        // SAFETY: the lock is ours, and the kernel has written the whole of it.
        Ok(unsafe { call.read() })
    }

    /// Ids of which one may be that of a call that was received and not
    /// answered; none before the first call.
    pub fn candidates(&self) -> impl Iterator<Item = u64> {
        let last = match self.received_id().load(SeqCst) {
            0 => self.shared().last_call.load(SeqCst),
            id => id,
        };
        let count = if last == 0 { 0 } else { 2 * REACH };
        (0..count).map(move |offset| last.wrapping_sub(REACH).wrapping_add(offset))
    }

    /// Notes that `thread` is to get `mask` back; `None` when too many are noted.
    pub fn note_mask(&self, thread: u32, mask: Mask) -> Option<MaskNote<'_>> {
        let free = |noted: &&Noted| noted.thread.compare_exchange(0, TAKEN, SeqCst, SeqCst).is_ok();
        let noted = self.shared().masks.iter().find(free)?;
        noted.mask.store(mask.bits(), SeqCst);
        noted.thread.store(u64::from(thread), SeqCst);
        Some(MaskNote(&noted.thread))
    }

    /// The threads that did not get their masks back, with these.
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
        // SAFETY: unmaps what `new` mapped; nothing refers to it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), size_of::<Shared>()) };
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
            // SAFETY: the memory that the kernel would write to.
            unsafe { (*call).id = 70_000 };
            Ok(())
        };
        assert_eq!(handover.receive(receive).unwrap().id, 70_000);
        assert!(handover.candidates().any(|id| id == 70_000));
        assert!(handover.receive(gone).is_err());
        assert!(handover.candidates().any(|id| id == 70_000), "it may wait for its answer still");
    }
}
