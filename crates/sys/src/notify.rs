//! The supervisor's side of seccomp user notification (`seccomp_unotify(2)`).

use crate::check;
use crate::handover::Handover;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Notification {
    /// The kernel's id of this call.
    pub id: u64,
    /// The calling thread, in this pid namespace; 0 if it is not visible here.
    pub thread: u32,
    /// The system call number, in the caller's ABI.
    pub number: i32,
    /// `AUDIT_ARCH_*` of the caller.
    pub arch: u32,
    /// The six argument registers.
    pub args: [u64; 6],
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call returns this value without being done.
    Value(i64),
    /// The call fails with this errno.
    Errno(i32),
    /// The kernel does the call.
    Continue,
}

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`.
const SYNC_WAKE_UP: u64 = 1;

/// The listener of a filter.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    handover: Option<Arc<Handover>>,
}

impl From<OwnedFd> for Listener {
    fn from(fd: OwnedFd) -> Self {
        Self { fd, handover: None }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    /// Records every call that is received in `handover`.
    #[must_use]
    pub fn noting(self, handover: Arc<Handover>) -> Self {
        Self { handover: Some(handover), ..self }
    }

    /// Returns the memory for records that must outlive this process.
    pub fn handover(&self) -> Option<&Handover> {
        self.handover.as_deref()
    }

    /// Asks the kernel to wake the supervisor on the caller's processor (`SYNC_WAKE_UP`, Linux
    /// 6.6). Returns whether the kernel supports this.
    pub fn wake_on_same_cpu(&self) -> bool {
        // SAFETY: the request takes the flags by value.
        unsafe {
            libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) == 0
        }
    }

    /// Receives one call. Returns `Ok(None)` if the caller died or was interrupted before the
    /// call was received.
    ///
    /// # Errors
    /// Those of `SECCOMP_IOCTL_NOTIF_RECV` except `ENOENT` and `EINTR`.
    pub fn receive(&self) -> io::Result<Option<Notification>> {
        let receive = |call: *mut libc::seccomp_notif| {
            // SAFETY: the kernel writes one struct seccomp_notif, which is zeroed.
            check(libc::c_long::from(unsafe {
                libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, call)
            }))
            .map(drop)
        };
        let received = match &self.handover {
            Some(handover) => handover.receive(receive),
            None => {
                // SAFETY: plain integers, valid when zeroed.
                let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
                receive(&raw mut call).map(|()| call)
            }
        };
        match received {
            Ok(call) => Ok(Some(Notification {
                id: call.id,
                thread: call.pid,
                number: call.data.nr,
                arch: call.data.arch,
                args: call.data.args,
            })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Answers the call `id`. Returns `Ok(false)` if the caller no longer waits.
    ///
    /// # Errors
    /// Those of `SECCOMP_IOCTL_NOTIF_SEND` except `ENOENT`.
    pub fn answer(&self, id: u64, answer: Answer) -> io::Result<bool> {
        let (val, error, flags) = match answer {
            Answer::Value(value) => (value, 0, 0),
            Answer::Errno(errno) => (0, -errno, 0),
            Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        };
        let mut raw = libc::seccomp_notif_resp { id, val, error, flags };
        loop {
            // SAFETY: the kernel reads one struct seccomp_notif_resp.
            let sent = check(libc::c_long::from(unsafe {
                libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut raw)
            }));
            match sent {
                Ok(_) => return Ok(true),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the caller of `id` still waits, so that its pid cannot have been reused.
    pub fn is_valid(&self, id: u64) -> bool {
        // SAFETY: the kernel reads one u64.
        unsafe {
            libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0
        }
    }
}
