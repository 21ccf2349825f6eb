//! What a hold keeps in memory: the lock under which its verbs run, and its guard.
//!
//! The guard is a process that holds flock(2) on the files below the overlays. A lock in an overlay
//! is a lock on the overlay's own inode. Without the guard a second daemon, which reaches the file
//! by another path than the overlay, would also get the lock and write to the same database. The
//! hold itself does not depend on the guard.

use crate::awaited_lock::{self, AwaitedLock, LockOf, OnWait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::{mutant, standard_paths};
use synconce_sys::process::{self, Side};
use synconce_sys::procfs::Stat;
use synconce_sys::signals;

/// How long the guard may take to end after a signal.
const ENDING: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// The guard's process.
#[derive(Debug, Serialize, Deserialize)]
struct Guard {
    pid: u32,
    /// The start of the process (field 22 of `/proc/PID/stat`): ids are used again.
    started: String,
}

/// The lock of a hold, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    name: String,
    /// Locked. `None` in the guard alone.
    file: Option<OwnedFd>,
    /// The locks of [`Lock::take_disks`].
    disks: Vec<OwnedFd>,
}

impl Lock {
    /// Waits until no other command changes the hold `name`.
    pub(crate) fn take(name: &str, on_wait: OnWait<'_>) -> Result<Self, Error> {
        let directory = directory();
        // Both directories: all users may read the files of guards and of runs.
        for made in directory.parent().into_iter().chain([&*directory]) {
            standard_paths::make_runtime(made).on("cannot create", made)?;
        }
        let of = || LockOf::Hold(name.to_owned());
        let file = Some(locked(&format!("{name}.lock"), of, on_wait)?);
        Ok(Self { name: name.to_owned(), file, disks: Vec::new() })
    }

    /// Waits until no other command starts a hold on one of `devices`, whatever the name of that
    /// hold is. Two names can lead to one file.
    pub(crate) fn take_disks(
        &mut self,
        devices: &BTreeMap<u64, PathBuf>,
        on_wait: OnWait<'_>,
    ) -> Result<(), Error> {
        // Always in the same order, so that two commands never wait for each other.
        for (device, path) in devices {
            let of = || LockOf::Disk(path.clone());
            self.disks.push(locked(&format!("{device}.disk"), of, on_wait)?);
        }
        Ok(())
    }

    /// Takes the lock beside other readers, if no command changes the hold `name`. A command that
    /// changes the hold waits until the returned value is dropped.
    ///
    /// # Errors
    /// `EWOULDBLOCK` while a command changes the hold, `ENOENT` if no command has changed the hold
    /// since the boot, or the error of open(2): only root may open the lock.
    pub(crate) fn share(name: &str) -> Result<Self, Errno> {
        let path = directory().join(format!("{name}.lock"));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(&path, flags, Mode::empty())?;
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(Self { name: name.to_owned(), file: Some(file), disks: Vec::new() })
    }

    /// Starts the guard, which keeps `locked` open. The calling process must have one thread.
    pub(crate) fn guard(&mut self, locked: Vec<OwnedFd>) -> Result<(), Error> {
        if mutant::is("hold-unguarded") {
            return Ok(());
        }
        let path = self.guard_path();
        let (ready, started) = pipe_with(PipeFlags::CLOEXEC).on("cannot make a pipe for", &path)?;
        match process::fork().on("cannot start the guard of", &path)? {
            Side::Parent(_) => {
                // The end of the pipe: until the guard has left the session, a signal to this
                // process's group would end the guard as well.
                drop(started);
                let mut code = [0];
                let count = rustix::io::read(&ready, &mut code);
                match (count.on("cannot start the guard of", &path)?, code) {
                    (0, _) => Err(Error::new("cannot start the guard of", &path, Errno::SRCH)),
                    (_, [0]) => Ok(()),
                    (_, [code]) => {
                        let errno = Errno::from_raw_os_error(code.into());
                        Err(Error::new("cannot write", &path, errno))
                    }
                }
            }
            Side::Child => self.run_guard(&path, started, locked),
        }
    }

    /// Runs the guard in the calling process until a signal ends the process. `_locked` stays
    /// open. Writes 0 to `started` after the file `path` was written, or the number of the error.
    fn run_guard(&mut self, path: &Path, started: OwnedFd, _locked: Vec<OwnedFd>) -> ! {
        process::set_name(c"synconce-guard");
        // Only `ps` would show another command line.
        let _ = process::replace_command_line(&format!("synconce-guard {}", self.name));
        process::leave_session();
        // A handler of `synconce hold run` would keep a shutdown's SIGTERM from ending the guard.
        signals::reset();
        // Written here: if the parent is killed now, the next command finds this guard.
        let code = match write_guard(path) {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        };
        // The guard shares the open files, and would keep the locks for ever. Until here the lock
        // keeps other commands from looking for the guard.
        drop(self.file.take());
        self.disks.clear();
        // The parent may have ended.
        let _ = rustix::io::write(&started, &[code as u8]);
        if code != 0 {
            process::exit_now(1);
        }
        drop(started);
        loop {
            let _ = poll(&mut [], None);
        }
    }

    /// Ends the guard. A guard that has ended is no error.
    pub(crate) fn end_guard(&self) -> Result<(), Error> {
        let path = self.guard_path();
        if let Some(process) = guard(&self.name) {
            let ended = pidfd_send_signal(&process, Signal::KILL);
            ended.on("cannot end the guard of", &path)?;
            poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&ENDING))
                .on("cannot wait for the guard of", &path)?;
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other.on("cannot remove", &path),
        }
    }

    fn guard_path(&self) -> PathBuf {
        guard_path(&self.name)
    }
}

/// Opens the file `name`, and waits for its lock. Calls `on_wait` before a wait.
fn locked(name: &str, of: impl Fn() -> LockOf, on_wait: OnWait<'_>) -> Result<OwnedFd, Error> {
    let path = directory().join(name);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).on("cannot open", &path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        on_wait(&AwaitedLock { of: of(), owner: awaited_lock::owner(&file) });
    }
    // Changes nothing if the lock was free.
    flock(&file, FlockOperation::LockExclusive).on("cannot lock", &path)?;
    Ok(file)
}

/// Takes the place of the one `synconce hold run` of the hold `name`, until the value is dropped.
/// Waits until no other command changes the hold, and calls `on_wait` before. Returns `None` while
/// another process has the place.
///
/// # Errors
/// Names the file that cannot be locked.
pub fn only_runner(name: &str, on_wait: OnWait<'_>) -> Result<Option<OwnedFd>, Error> {
    let _lock = Lock::take(name, on_wait)?;
    run_place(name, FlockOperation::NonBlockingLockExclusive)
}

/// Whether a process has the place of [`only_runner`]. The caller has the lock of the hold.
pub(crate) fn is_running(name: &str) -> Result<bool, Error> {
    Ok(run_place(name, FlockOperation::NonBlockingLockShared)?.is_none())
}

/// Locks the file of the one `synconce hold run`; `None` if another process has it locked. A lock
/// of fcntl(2) is the process' own: no guard inherits it.
fn run_place(name: &str, lock: FlockOperation) -> Result<Option<OwnedFd>, Error> {
    let path = directory().join(format!("{name}.run"));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).on("cannot open", &path)?;
    match rustix::fs::fcntl_lock(&file, lock) {
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
        locked => locked.on("cannot lock", &path).map(|()| Some(file)),
    }
}

/// Returns the guard of the hold `name`, if it lives.
pub(crate) fn guard(name: &str) -> Option<OwnedFd> {
    let text = fs::read(guard_path(name)).ok()?;
    let guard: Guard = serde_json::from_slice(&text).ok()?;
    let pid = Pid::from_raw(i32::try_from(guard.pid).ok()?)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // Read after the descriptor was opened: the descriptor is of this process or of none.
    let is_same = Stat::read(guard.pid)?.began()?.to_string() == guard.started;
    (is_same && !has_ended(&process)).then_some(process)
}

/// Makes `note`, an empty file: a full tmpfs has an inode left.
pub(crate) fn make_note(note: &str) -> Result<(), Error> {
    let path = directory().join(note);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).on("cannot create", &path).map(drop)
}

/// Whether [`make_note`] was called for `note`.
pub(crate) fn has_note(note: &str) -> bool {
    directory().join(note).exists()
}

/// Removes what [`make_note`] made.
pub(crate) fn remove_note(note: &str) -> Result<(), Error> {
    let path = directory().join(note);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.on("cannot remove", &path),
    }
}

/// Writes the file by which [`guard`] finds the calling process.
fn write_guard(path: &Path) -> io::Result<()> {
    let pid = std::process::id();
    let started = Stat::read(pid).and_then(|stat| stat.began()).ok_or(ErrorKind::InvalidData)?;
    let text = serde_json::to_vec(&Guard { pid, started: started.to_string() })?;
    // The stop kills the process that the file names, so only root may write the file.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::File::options().write(true).create_new(true).mode(0o644).open(path)?.write_all(&text)
}

fn has_ended(process: &impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)) != Ok(0)
}

/// Locks `file` for the guard.
///
/// # Errors
/// `EWOULDBLOCK` while another process has the lock: it uses the database.
pub(crate) fn lock_below(file: &OwnedFd) -> Result<(), Errno> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

fn guard_path(name: &str) -> PathBuf {
    directory().join(format!("{name}.guard"))
}

fn directory() -> PathBuf {
    standard_paths::runtime().unwrap_or_else(|| Path::new("/run/synconce").into()).join("holds")
}
