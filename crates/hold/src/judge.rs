//! Answers one call: decides, makes the marker durable, holds, counts.

use crate::accounts::{Accounts, End};
use crate::answers::{Change, Decision, Waiting, decide};
use crate::claims::{Claim, Claims};
use crate::held::HANDSHAKE_VALUE;
use crate::options::Options;
use crate::protocol::{Message, Notice, offer};
use crate::rewrite::{Rewrite, Rewritten};
use crate::rights::Gain;
use crate::targets::Targets;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use synconce_filter::Call;
use synconce_probe::mounts::DeviceId;
use synconce_sys::notify::{Answer, Listener};

/// What a judge asks of the rest of the run.
pub(crate) trait Ledger: Send {
    /// Makes the marker durable; nothing may be held when this fails. What the
    /// user should know of it.
    ///
    /// # Errors
    /// What the user is told.
    fn engage(&mut self) -> Result<Option<Notice>, String>;
    /// Lets go of the mount, which is about to be unmounted, once what is returned
    /// has been done. That may take long, and is done without the books.
    fn unmount(&mut self, mount: u64) -> Option<Box<dyn FnOnce() + Send>>;
    /// Whether the commit will cover `device`; descriptor `via.1` of thread
    /// `via.0` may lead to a file there. What it does not cover is not held.
    fn held_on(&mut self, device: DeviceId, via: (u32, i32)) -> bool;
    /// Notes that a sync() is held: the commit makes one.
    fn held_sync(&mut self);
}

/// A descriptor whose sync flag was taken away, by its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unsynced {
    pub device: u64,
    pub inode: u64,
}

/// How far a judge came with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It is answered, or nobody waits for an answer any more.
    Done,
    /// That takes patient targets.
    Patience,
    /// As done, but the calling thread has to end, to let go of the caller.
    Left,
}

/// What is answered, and what was counted for that.
struct Reply {
    answer: Answer,
    /// The end, and the program's name.
    counted: Option<(End, Option<String>)>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self { answer, counted: None }
    }
}

/// What has been done so far.
pub(crate) struct Book<L> {
    /// `None` once the run is over: then nothing is held any more.
    pub ledger: Option<L>,
    pub accounts: Accounts,
    /// Files that were opened without their sync flag.
    pub unsynced: HashSet<Unsynced>,
    /// Calls that go on without their sync flag, by id.
    changing: HashMap<u64, Changing>,
    /// Why nothing can be held.
    pub failure: Option<String>,
    /// What the user was told of, with [`Notice::NoRightsGained`].
    pub rights_told: HashSet<Gain>,
}

/// Answers calls, from any thread.
pub(crate) struct Judge<L> {
    options: Options,
    listener: Arc<Listener>,
    face: Arc<OwnedFd>,
    command: u32,
    book: Arc<Mutex<Book<L>>>,
    /// Threads whose last call a signal came upon while it was to be changed.
    disturbed: Mutex<HashSet<u32>>,
    traced: Claims,
}

const SIGTERM: i32 = 15;

/// A call that goes on without its sync flag.
struct Changing {
    thread: u32,
    call: Call,
    program: Option<String>,
}

impl<L> Book<L> {
    pub(crate) fn new(ledger: L) -> Self {
        Self { ledger: Some(ledger), ..Self::empty() }
    }

    /// The book of a run that is over.
    pub(crate) fn empty() -> Self {
        Self {
            ledger: None,
            accounts: Accounts::default(),
            unsynced: HashSet::new(),
            changing: HashMap::new(),
            failure: None,
            rights_told: HashSet::new(),
        }
    }

    /// Notes that the sync flag of call `id` of `thread` is about to be taken away;
    /// `false` when the run is over, and the call must keep it.
    fn begin(&mut self, id: u64, thread: u32, call: Call, program: Option<String>) -> bool {
        if self.ledger.is_some() {
            self.changing.insert(id, Changing { thread, call, program });
        }
        self.ledger.is_some()
    }

    /// The threads that are still in calls without their sync flag, which are
    /// counted as held: nobody will when they are done.
    pub(crate) fn count_unfinished(&mut self) -> HashSet<u32> {
        for Changing { call, program, .. } in self.changing.values() {
            self.accounts.count(call.name(), program.as_deref(), End::Held);
        }
        self.changing.drain().map(|(_, changing)| changing.thread).collect()
    }
}

/// The book; one that a panicking thread left is still the truth so far.
pub(crate) fn open<T>(book: &Mutex<T>) -> MutexGuard<'_, T> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L: Ledger> Judge<L> {
    pub(crate) fn new(
        options: &Options,
        listener: Arc<Listener>,
        face: Arc<OwnedFd>,
        command: u32,
        book: Arc<Mutex<Book<L>>>,
    ) -> Self {
        let (disturbed, traced) = Default::default();
        Self { options: options.clone(), listener, face, command, book, disturbed, traced }
    }

    /// Answers `waiting`.
    pub(crate) fn judge(&self, targets: &mut Targets, waiting: &Waiting) -> Judged {
        let decision = decide(targets, waiting, &self.options);
        if targets.take_missed() {
            return Judged::Patience;
        }
        let Reply { answer, counted } = match self.consider(waiting, decision) {
            Ok(reply) => reply,
            Err(judged) => return judged,
        };
        // An error means that the caller is gone; nothing was done in its name.
        let reached = self.listener.answer(waiting.notification.id, answer).unwrap_or(false);
        if let (false, Some((end, program))) = (reached, counted) {
            // Before Linux 5.19 a signal may have come upon it, and it is made again.
            let name = waiting.call.name();
            open(&self.book).accounts.take_back(name, program.as_deref(), end);
        }
        Judged::Done
    }

    /// Keeps the command's first thread from being traced as long as it is held;
    /// `None` while it is.
    pub(crate) fn untraced(&self) -> Option<Claim<'_>> {
        self.traced.take(self.command)
    }

    /// The reply.
    ///
    /// # Errors
    /// How far we came, when there is none to give.
    fn consider(&self, waiting: &Waiting, decision: Decision) -> Result<Reply, Judged> {
        Ok(match decision {
            Decision::Hold(devices) => self.hold(waiting, &devices),
            Decision::Rewrite(change) => return self.change(waiting, &change),
            Decision::Pass => self.count(waiting, End::Passed, Answer::Continue),
            Decision::Refuse(errno) => self.count(waiting, End::Refused, Answer::Errno(errno)),
            Decision::Ignore => Answer::Continue.into(),
            Decision::Handshake => Answer::Value(HANDSHAKE_VALUE).into(),
            Decision::Unmount(mount) => {
                let unmount = |mount| open(&self.book).ledger.as_mut()?.unmount(mount);
                if let Some(depart) = mount.and_then(unmount) {
                    depart();
                }
                Answer::Continue.into()
            }
            Decision::GainRights(path) => {
                if open(&self.book).rights_told.insert(Gain::of(&path)) {
                    self.tell(Notice::NoRightsGained(path));
                }
                Answer::Continue.into()
            }
        })
    }

    fn hold(&self, waiting: &Waiting, devices: &[DeviceId]) -> Reply {
        let program = self.program(waiting);
        let mut book = open(&self.book);
        if let Err(reply) = self.engage(&mut book, waiting, devices, program.as_deref()) {
            return reply;
        }
        book.accounts.count(waiting.call.name(), program.as_deref(), End::Held);
        Reply { answer: Answer::Value(0), counted: Some((End::Held, program)) }
    }

    fn change(&self, waiting: &Waiting, change: &Change) -> Result<Reply, Judged> {
        let program = self.program(waiting);
        let devices = &change.devices;
        let engaged = self.engage(&mut open(&self.book), waiting, devices, program.as_deref());
        match engaged {
            Err(reply) => Ok(reply),
            Ok(()) => Err(self.rewrite(waiting, change, program)),
        }
    }

    fn rewrite(&self, waiting: &Waiting, change: &Change, program: Option<String>) -> Judged {
        let (thread, id) = (waiting.notification.thread, waiting.notification.id);
        let claim = self.traced.wait_for(thread);
        let shielded = open(&self.disturbed).remove(&thread);
        let begin = || open(&self.book).begin(id, thread, waiting.call, program.clone());
        let rewrite =
            Rewrite { listener: &self.listener, waiting, change, shielded, command: self.command };
        let rewritten = match &claim {
            Some(claim) => rewrite.perform(claim, &begin),
            None => rewrite.pass(),
        };
        if matches!(rewritten, Rewritten::Disturbed | Rewritten::Left) {
            open(&self.disturbed).insert(thread);
        }
        // In one step with its count: who closes the books in between counts it as well.
        let mut book = open(&self.book);
        book.changing.remove(&id);
        let end = match rewritten {
            Rewritten::Done(value) if value >= 0 => End::Held,
            Rewritten::Passed => End::Passed,
            Rewritten::Left => return Judged::Left,
            _ => return Judged::Done,
        };
        book.accounts.count(waiting.call.name(), program.as_deref(), end);
        if let (true, Rewritten::Done(fd)) = (change.opens, rewritten) {
            book.unsynced.extend(unsynced(thread, fd));
        }
        Judged::Done
    }

    /// Makes the marker durable before anything is held.
    ///
    /// # Errors
    /// When the run is over, or the commit would not cover it: then the call goes
    /// to the kernel.
    fn engage(
        &self,
        book: &mut Book<L>,
        waiting: &Waiting,
        devices: &[DeviceId],
        program: Option<&str>,
    ) -> Result<(), Reply> {
        let (Some(ledger), None) = (book.ledger.as_mut(), &book.failure) else {
            return Err(Answer::Continue.into());
        };
        let descriptor = synconce_filter::args::descriptor(waiting.notification.args[0]);
        let via = (waiting.notification.thread, descriptor);
        if devices.is_empty() {
            ledger.held_sync();
        }
        if !devices.iter().all(|device| ledger.held_on(*device, via)) {
            book.accounts.count(waiting.call.name(), program, End::Passed);
            let counted = Some((End::Passed, program.map(str::to_owned)));
            return Err(Reply { answer: Answer::Continue, counted });
        }
        match ledger.engage() {
            Ok(notice) => notice.into_iter().for_each(|notice| self.tell(notice)),
            Err(error) => {
                book.failure = Some(error);
                // The command cannot be held as was asked, so it shall not go on.
                synconce_sys::signals::send(self.command, SIGTERM);
                return Err(Answer::Continue.into());
            }
        }
        Ok(())
    }

    /// Counts a call before it is answered: once it is, the run may end.
    fn count(&self, waiting: &Waiting, end: End, answer: Answer) -> Reply {
        let program = self.program(waiting);
        open(&self.book).accounts.count(waiting.call.name(), program.as_deref(), end);
        Reply { answer, counted: Some((end, program)) }
    }

    fn program(&self, waiting: &Waiting) -> Option<String> {
        self.options.by_program.then(|| waiting.program()).flatten()
    }

    fn tell(&self, notice: Notice) {
        offer(&*self.face, &Message::Notice(notice));
    }
}

fn unsynced(thread: u32, fd: i64) -> Option<Unsynced> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(format!("/proc/{thread}/fd/{fd}")).ok()?;
    Some(Unsynced { device: meta.dev(), inode: meta.ino() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_keeps_its_sync_flag_once_the_run_is_over() {
        let mut over = Book::<()>::empty();
        assert!(!over.begin(1, 7, Call::Openat, None));
        assert!(over.count_unfinished().is_empty());
    }

    #[test]
    fn a_call_that_goes_on_without_its_sync_flag_at_the_end_is_counted_as_held() {
        let mut book = Book::new(());
        assert!(book.begin(1, 7, Call::Openat, Some("cp".to_owned())));
        assert_eq!(book.count_unfinished(), HashSet::from([7]));
        assert_eq!(book.accounts.programs["cp"].held, 1);
        assert!(book.count_unfinished().is_empty(), "once");
    }
}
