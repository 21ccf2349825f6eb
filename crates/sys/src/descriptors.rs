//! Tables of descriptors, which threads share.

/// Whether the threads `one` and `other` have one table of descriptors (`KCMP_FILES` of kcmp(2)). False,
/// too, if the caller may not examine them, or one has ended.
#[must_use]
pub fn have_same_descriptors(one: u32, other: u32) -> bool {
    const KCMP_FILES: libc::c_int = 2;
    // SAFETY: This call has no pointers.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};
    use std::thread;

    #[test]
    fn threads_have_the_same_descriptors_until_one_leaves_them() {
        let thread = || gettid().as_raw_pid().cast_unsigned();
        let first = thread();
        assert!(thread::spawn(move || have_same_descriptors(first, thread())).join().unwrap());
        let leaves = move || {
            // SAFETY: This thread uses no descriptor of the others.
            unsafe { unshare_unsafe(UnshareFlags::FILES) }.unwrap();
            have_same_descriptors(first, thread())
        };
        assert!(!thread::spawn(leaves).join().unwrap());
        assert!(!have_same_descriptors(first, u32::MAX));
    }
}
