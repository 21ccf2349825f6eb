//! Looking at other users' directories, as those users.
//!
//! What is there is theirs: links to anywhere, pipes, file systems that do not
//! answer. So a process with the user's own rights looks, and root believes no more
//! of it than that user may say. A process that does not answer is left behind: a
//! thread would keep us from ending (a FUSE request in a server's hands waits even
//! for a thread that is killed).

use super::accounts::{Account, Place};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Uid};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use synconce_durable::recovery::{self, Found, State};
use synconce_sys::process::{Side, WaitFor, Whose, exit_now, fork, give_up_inherited, wait};

/// How long a file system may take to answer.
const LIMIT: Duration = Duration::from_secs(5);
/// How many users are looked at at a time.
const AT_ONCE: usize = 16;
/// More than a user's interrupted runs take, in bytes.
const LONGEST: u64 = 8 << 20;
/// Memory of a process that looks, in bytes.
const MEMORY: u64 = 512 << 20;

/// What is found at one place.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The directory is not there.
    Gone,
    /// Its user's interrupted runs.
    Runs(Vec<Found>),
    /// Why it cannot be looked at.
    Failed(String),
}

/// What is to be done with the interrupted runs.
#[derive(Clone, Copy)]
pub enum Order<'a> {
    Show,
    /// Clear the run with this id; it is the only one that is answered.
    Clear(&'a str),
}

/// One answer for each place of each of `accounts`, in their order.
pub fn ask(accounts: &[Account], order: Order<'_>) -> Vec<Vec<Answer>> {
    accounts.chunks(AT_ONCE).flat_map(|some| ask_at_once(some, order)).collect()
}

/// A process that looks.
struct Asked {
    pid: u32,
    pipe: File,
    text: Vec<u8>,
    over: bool,
}

fn ask_at_once(accounts: &[Account], order: Order<'_>) -> Vec<Vec<Answer>> {
    let mut asked: Vec<_> = accounts.iter().map(|account| start(account, order)).collect();
    let end = Instant::now() + LIMIT;
    loop {
        let mut open: Vec<_> = asked.iter_mut().flatten().filter(|one| !one.over).collect();
        let left = end.saturating_duration_since(Instant::now());
        if open.is_empty() || left.is_zero() {
            break;
        }
        let mut fds: Vec<_> =
            open.iter().map(|one| PollFd::new(&one.pipe, PollFlags::IN)).collect();
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        // An interruption only means to look again.
        let _ = poll(&mut fds, Some(&left));
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (one, _) in open.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            one.read();
        }
    }
    let answers = asked.into_iter().map(|asked| asked.map(Asked::end));
    answers
        .zip(accounts)
        .map(|(answer, account)| {
            let places = account.places.len();
            match answer.and_then(|answer| answer) {
                Ok(answers) if answers.len() == places => answers,
                Ok(_) => refusals(places, "the answer makes no sense"),
                Err(why) => refusals(places, &why),
            }
        })
        .collect()
}

fn refusals(places: usize, why: &str) -> Vec<Answer> {
    (0..places).map(|_| Answer::Failed(why.to_owned())).collect()
}

fn start(account: &Account, order: Order<'_>) -> Result<Asked, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let flags = PipeFlags::CLOEXEC;
    let (pipe, answer) = pipe_with(flags).map_err(|error| text(&error))?;
    match fork().map_err(|error| text(&error))? {
        Side::Parent(pid) => Ok(Asked { pid, pipe: pipe.into(), text: Vec::new(), over: false }),
        Side::Child => {
            drop(pipe);
            exit_now(look(account, order, answer))
        }
    }
}

impl Asked {
    /// Reads what there is without waiting for more.
    fn read(&mut self) {
        let mut bytes = [0; 64 << 10];
        match self.pipe.read(&mut bytes) {
            Ok(0) => self.over = true,
            Ok(count) => self.text.extend_from_slice(&bytes[..count]),
            Err(error) => self.over = error.kind() != ErrorKind::Interrupted,
        }
        self.over |= self.text.len() as u64 > LONGEST;
    }

    /// The answers; ends the process if it has not ended.
    fn end(self) -> Result<Vec<Answer>, String> {
        if let Some(pid) = Pid::from_raw(self.pid.cast_signed()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        // One that waits for its file system cannot be waited for.
        let _ = wait(Whose::Id(self.pid), WaitFor { ends: true, ..WaitFor::default() });
        match serde_json::from_slice(&self.text) {
            _ if !self.over => Err(format!("no answer within {} s", LIMIT.as_secs())),
            _ if self.text.len() as u64 > LONGEST => Err("there is too much".to_owned()),
            Ok(answers) => Ok(answers),
            Err(_) => Err("the process that looked was killed".to_owned()),
        }
    }
}

/// In the process that looks: becomes the user, looks, answers. The exit code.
fn look(account: &Account, order: Order<'_>, answer: OwnedFd) -> i32 {
    // Left behind, it must not keep a pipe or a lock of our caller open.
    give_up_inherited(Some(answer.as_fd()));
    let _ = setrlimit(Resource::As, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) });
    let answers: Vec<_> = match become_user(account.user, account.group) {
        Ok(()) => account.places.iter().map(|place| look_at(place, account.user, order)).collect(),
        Err(error) => refusals(account.places.len(), &error.to_string()),
    };
    let text = serde_json::to_vec(&answers).unwrap_or_default();
    i32::from(File::from(answer).write_all(&text).is_err())
}

/// Gives up every right but those of `user`, which for root are all.
fn become_user(user: u32, group: u32) -> rustix::io::Result<()> {
    if user == 0 {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)
}

fn look_at(place: &Place, user: u32, order: Order<'_>) -> Answer {
    use ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match fs::metadata(&place.directory) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Answer::Gone,
        // A home that its user cannot enter holds no run of that user.
        Err(error) if error.kind() == PermissionDenied && place.pointer.is_none() => {
            return Answer::Gone;
        }
        Err(error) => return Answer::Failed(error.to_string()),
    }
    let mut found = match recovery::markers(&place.directory) {
        Ok(found) => found,
        Err(error) => return Answer::Failed(error.io().to_string()),
    };
    // What belongs to others is theirs to have looked at.
    found.retain(|found| found.state == State::Interrupted && found.owner == user);
    if let Order::Clear(id) = order {
        found.retain(|found| found.id == id);
        if let Some(error) = found.iter().find_map(|found| recovery::clear(found).err()) {
            return Answer::Failed(error.io().to_string());
        }
    }
    Answer::Runs(found)
}
