//! The last call that a listener received, in memory shared with forked
//! processes: who takes over from a receiver that was killed can answer what it
//! had received, which the kernel never hands out again.

use crate::check;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that this process and those that it forks later share.
#[derive(Debug)]
pub struct LastCall(NonNull<AtomicU64>);

// SAFETY: what it points to lives until the drop and is only used atomically.
unsafe impl Send for LastCall {}
// SAFETY: as above.
unsafe impl Sync for LastCall {}

/// Ids to try on either side of the last one. Ids are given in order, and calls
/// are received in order, but some callers die before, and some answers take
/// their time.
const REACH: u64 = 16 * 1024;

impl LastCall {
    /// Makes it; there is no call yet.
    ///
    /// # Errors
    /// `ENOMEM` of `mmap(2)`.
    pub fn new() -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of a whole page, zeroed and aligned for any atomic.
        let page = unsafe {
            libc::mmap(ptr::null_mut(), size_of::<AtomicU64>(), protection, flags, -1, 0)
        };
        if page == libc::MAP_FAILED {
            check(-1)?;
        }
        NonNull::new(page.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn id(&self) -> &AtomicU64 {
        // SAFETY: the mapping is ours until the drop, and zero is a valid AtomicU64.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn note(&self, id: u64) {
        self.id().store(id, Relaxed);
    }

    /// Ids of which one may be that of a call that was received and not
    /// answered; none before the first call.
    pub fn candidates(&self) -> impl Iterator<Item = u64> {
        let last = self.id().load(Relaxed);
        let count = if last == 0 { 0 } else { 2 * REACH };
        (0..count).map(move |offset| last.wrapping_sub(REACH).wrapping_add(offset))
    }
}

impl Drop for LastCall {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; nothing refers to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<AtomicU64>()) };
    }
}
