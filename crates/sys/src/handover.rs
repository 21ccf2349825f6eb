//! What a receiver of calls leaves to who takes over from it when it is killed,
//! in memory shared with forked processes: the last call that it received, which
//! the kernel never hands out again, and the signal masks that it was to give back.

use crate::check;
use crate::trace::Mask;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Memory that this process and those that it forks later share.
#[derive(Debug)]
pub struct Handover(NonNull<Shared>);

/// Every field is valid when zeroed.
struct Shared {
    last_call: AtomicU64,
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
        NonNull::new(pages.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the mapping is ours until the drop, and zero is a valid `Shared`.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn note_call(&self, id: u64) {
        self.shared().last_call.store(id, Relaxed);
    }

    /// Ids of which one may be that of a call that was received and not
    /// answered; none before the first call.
    pub fn candidates(&self) -> impl Iterator<Item = u64> {
        let last = self.shared().last_call.load(Relaxed);
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
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Shared>()) };
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
        handover.note_call(70_000);
        assert!(handover.candidates().any(|id| id == 70_000));
    }
}
