//! Serving survivors: once the run is over every call goes to the kernel, so that survivors'
//! syncs are real again.

use crate::report::accounts::{Accounts, End, PassReason};
use rustix::event::{PollFd, PollFlags};
use std::sync::{Mutex, PoisonError, Weak};
use synconce_durable::mutant;
use synconce_filter::{Call, CallProperty, HANDSHAKE_FLAGS, args};
use synconce_sys::notify::{Answer, Listener, Notification};

/// Answers every call with *continue*, until the last process under the filter has exited. Counts
/// the syncs in `accounts` while these exist, which is until the run has reported them.
pub(crate) fn serve(listener: &Listener, accounts: &Weak<Mutex<Accounts>>) {
    while wait_for_call(listener) {
        if let Ok(Some(notification)) = listener.receive() {
            if let Some(accounts) = accounts.upgrade()
                && let Some((_, call)) = Call::identify(notification.arch, notification.number)
                && call.is(CallProperty::OnlySyncs)
            {
                let mut accounts = accounts.lock().unwrap_or_else(PoisonError::into_inner);
                accounts.count(call.name(), None, End::Passed(PassReason::AfterEnd));
            }
            // An error means that the caller has exited.
            let _ = listener.answer(notification.id, released_answer(&notification));
        }
    }
}

/// Returns the answer to a call once no call is held any more.
pub(crate) fn released_answer(notification: &Notification) -> Answer {
    if mutant::is("survivors-not-released") {
        return Answer::Value(0);
    }
    let asks = matches!(
        Call::identify(notification.arch, notification.number),
        Some((abi, Call::SyncFileRange))
            if args::sync_file_range(abi, &notification.args).2 == HANDSHAKE_FLAGS
    );
    // EBADF is the kernel's own answer to an inner run's question.
    if asks { Answer::Errno(rustix::io::Errno::BADF.raw_os_error()) } else { Answer::Continue }
}

/// Waits for a call. Returns `false` once no process under the filter is left.
fn wait_for_call(listener: &Listener) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
            Ok(_) => return fds[0].revents().contains(PollFlags::IN),
        }
    }
}

/// Whether any process is still under the filter of `listener`.
pub(crate) fn is_used(listener: &Listener) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::empty())];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut fds, Some(&now)) {
        Ok(_) => !fds[0].revents().contains(PollFlags::HUP),
        Err(_) => true,
    }
}
