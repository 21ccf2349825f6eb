//! Tables of descriptors, which threads share, and descriptors that a socket passes on.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Sends a copy of `file` to the other end of `socket`, with one byte (`SCM_RIGHTS`, unix(7)).
/// Async-signal-safe.
///
/// # Errors
/// Those of sendmsg(2): `ETOOMANYREFS` if the user has too many descriptors in flight.
pub fn send(socket: impl AsFd, file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(socket, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// Receives a descriptor by recvmsg(2) with `flags`. `None` if the message has none: the kernel
/// drops a descriptor for which this process has no number left (`MSG_CTRUNC`).
///
/// # Errors
/// Those of recvmsg(2).
pub fn receive(socket: impl AsFd, flags: RecvFlags) -> rustix::io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut ancillary, flags)?;
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    }))
}

/// Whether the threads `one` and `other` have one table of descriptors (`KCMP_FILES` of kcmp(2)).
/// False, too, if the caller may not examine them, or one has ended.
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
