//! Fork, wait, and the attributes of a process.

use crate::{check, origin};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The process that forked, with the new process's id.
    Parent(u32),
    /// The new process.
    Child,
}

/// How long a thread may still be listed that has been joined: who waits for it is told
/// before the kernel takes it off its lists.
const ENDING: Duration = Duration::from_millis(500);

/// Forks the calling process, which must have one thread: a fork copies only
/// the calling thread, and locks that others held would stay held.
///
/// # Errors
/// `EAGAIN` or `ENOMEM` of `fork(2)`; `EDEADLK` when there are other threads.
pub fn fork() -> io::Result<Side> {
    let began = Instant::now();
    while threads() > 1 {
        if began.elapsed() > ENDING {
            return Err(io::Error::from_raw_os_error(libc::EDEADLK));
        }
        sleep(Duration::from_micros(100));
    }
    // SAFETY: this is the only thread, so the child's memory is consistent.
    match check(libc::c_long::from(unsafe { libc::fork() }))? {
        0 => Ok(Side::Child),
        pid => Ok(Side::Parent(pid as u32)),
    }
}

/// The threads of this process; 1 when /proc cannot say.
fn threads() -> u64 {
    use std::os::unix::fs::MetadataExt;
    // The link count of a directory is 2 and one for each sub-directory.
    std::fs::metadata("/proc/self/task").map_or(1, |task| task.nlink().saturating_sub(2))
}

/// Executes `program` in our place, which comes back only with the error of
/// execve(2). It gets our descriptors, our environment with `variable` set, and
/// what we inherited before the Rust runtime changed it.
pub fn replace_by(program: &Path, arguments: &[OsString], variable: (&str, OsString)) -> io::Error {
    let words = [program.as_os_str()].into_iter().chain(arguments.iter().map(OsString::as_os_str));
    let others = std::env::vars_os().filter(|(name, _)| name != variable.0);
    let environment = others.chain([(variable.0.into(), variable.1)]).map(|(mut entry, value)| {
        entry.push("=");
        entry.push(value);
        entry
    });
    let c_strings = |list: &mut dyn Iterator<Item = OsString>| {
        list.map(|text| CString::new(text.into_vec())).collect::<Result<Vec<_>, _>>()
    };
    let strings = c_strings(&mut words.map(OsStr::to_owned))
        .and_then(|words| Ok((words, c_strings(&mut environment.into_iter())?)));
    let (words, environment) = match strings {
        Ok(strings) => strings,
        Err(error) => return error.into(),
    };
    let pointers = |strings: &[CString]| {
        let all = strings.iter().map(|string| string.as_ptr());
        all.chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (arguments, environment) = (pointers(&words), pointers(&environment));
    origin::forget_runtime_stdio();
    origin::restore_dispositions();
    // SAFETY: both vectors end with a null pointer, and their strings live on.
    unsafe { libc::execve(arguments[0], arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends the process at once: no destructors, no flushing.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit never returns and touches no memory of ours.
    unsafe { libc::_exit(code) }
}

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended with this exit code.
    Exited(i32),
    /// It was ended by this signal.
    Killed(i32),
    /// It is stopped by job control, by this signal.
    Stopped(i32),
    /// It goes on after a stop.
    Continued,
    /// It is in a ptrace stop, of whoever traces it, with this code: the signal,
    /// and from the ninth bit on the event.
    Trapped(i32),
}

/// Whose change is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Any child of the calling thread.
    Any,
    /// The child or tracee with this id.
    Id(u32),
}

/// Options of [`wait`].
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitFor {
    /// Ends.
    pub ends: bool,
    /// Stops.
    pub stops: bool,
    /// Continuations after a stop.
    pub continues: bool,
    /// Leave the change to be seen again.
    pub peek: bool,
    /// Wait until there is one.
    pub block: bool,
    /// Threads of others that we trace, too (`__WALL`).
    pub tracees: bool,
}

/// `waitid(2)`: the next change, with the process it is about.
///
/// Only children and tracees of the calling thread count (`__WNOTHREAD`). A child
/// that a thread of ours traces is reported even when stops were not asked for; peek
/// first.
///
/// # Errors
/// `ECHILD` when there is nobody to wait for.
pub fn wait(whose: Whose, options: WaitFor) -> io::Result<Option<(u32, Change)>> {
    let mut flags = libc::__WNOTHREAD | if options.tracees { libc::__WALL } else { 0 };
    for (wanted, flag) in [
        (options.ends, libc::WEXITED),
        (options.stops, libc::WSTOPPED),
        (options.continues, libc::WCONTINUED),
        (options.peek, libc::WNOWAIT),
        (!options.block, libc::WNOHANG),
    ] {
        flags |= if wanted { flag } else { 0 };
    }
    let (kind, id) = match whose {
        Whose::Any => (libc::P_ALL, 0),
        Whose::Id(id) => (libc::P_PID, id),
    };
    // SAFETY: siginfo_t is plain data, valid when zeroed.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the kernel writes one siginfo_t into memory we own.
        match check(libc::c_long::from(unsafe { libc::waitid(kind, id, &raw mut info, flags) })) {
            Ok(_) => break,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    // SAFETY: waitid filled the SIGCHLD fields, or left them zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let change = match info.si_code {
        libc::CLD_EXITED => Change::Exited(status),
        libc::CLD_KILLED | libc::CLD_DUMPED => Change::Killed(status),
        libc::CLD_STOPPED => Change::Stopped(status),
        libc::CLD_CONTINUED => Change::Continued,
        _ => Change::Trapped(status),
    };
    Ok(Some((pid as u32, change)))
}

/// Makes the calling process the one to which orphaned descendants are given
/// (`PR_SET_CHILD_SUBREAPER`, Linux 3.4).
///
/// # Errors
/// `EINVAL` before Linux 3.4.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }))
        .map(drop)
}

/// Closes every descriptor that survived our own execution, which is all that
/// we inherited: ours are close-on-exec. The standard ones become `null`; the
/// one in `keep` stays.
fn close_inherited(null: Option<BorrowedFd<'_>>, keep: Option<BorrowedFd<'_>>) {
    for fd in inherited_numbers() {
        if keep.is_some_and(|keep| keep.as_raw_fd() == fd) {
            continue;
        }
        match null.filter(|_| fd < 3) {
            // SAFETY: replaces an inherited descriptor, which nobody here owns.
            Some(null) => unsafe { libc::dup2(null.as_raw_fd(), fd) },
            // SAFETY: as above.
            None => unsafe { libc::close(fd) },
        };
    }
}

/// The descriptors that survived our own execution.
pub fn inherited() -> Vec<BorrowedFd<'static>> {
    // SAFETY: nothing here owns an inherited descriptor, so it stays open until
    // `give_up_inherited`, after which the number may be another's: a look at the wrong file.
    inherited_numbers().map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }).collect()
}

fn inherited_numbers() -> impl Iterator<Item = i32> {
    open_descriptors().into_iter().filter(|fd| {
        // SAFETY: F_GETFD only reads the descriptor table.
        let flags = unsafe { libc::fcntl(*fd, libc::F_GETFD) };
        flags != -1 && flags & libc::FD_CLOEXEC == 0
    })
}

/// Leaves the terminal and gives up what was inherited: pipes must end when
/// others' copies do, and locks and directories must not be pinned.
pub fn leave_session() {
    // It fails only for a group leader, which a forked process is not.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    give_up_inherited(None);
}

/// Closes what was inherited, but `keep`; the standard descriptors lead nowhere.
pub fn give_up_inherited(keep: Option<BorrowedFd<'_>>) {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()).ok();
    close_inherited(null.as_ref().map(AsFd::as_fd), keep);
}

/// Lets every other process go first, at the processor and at the disk: the calling
/// thread, and those that it starts from now on, are niced and have the idle I/O class
/// (`ioprio_set(2)`, Linux 2.6.13), where the disk's scheduler has classes.
pub fn give_way() {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3 << 13;
    let _ = rustix::process::nice(19);
    // SAFETY: takes no pointers. Where it fails the work is only less polite.
    unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) };
}

/// Numbers among which are those of all open descriptors. Listing `/proc/self/fd`
/// makes an inode for each entry, so where the kernel says how many there are
/// (the directory's size, Linux 6.2) they are counted off from 0.
fn open_descriptors() -> Vec<i32> {
    /// Beyond this many closed ones the listing is quicker.
    const HOLES: u64 = 256;
    let count = std::fs::metadata("/proc/self/fd").map_or(0, |meta| meta.len());
    let (mut found, mut next) = (Vec::new(), 0);
    while (found.len() as u64) < count && next < count + HOLES {
        let fd = next as i32;
        // SAFETY: F_GETFD only reads the descriptor table.
        found.extend((unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1).then_some(fd));
        next += 1;
    }
    if count > 0 && found.len() as u64 == count {
        return found;
    }
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Names the calling thread as `ps` and `top` show it; at most 15 bytes.
pub fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the kernel reads at most 16 bytes of a terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}
