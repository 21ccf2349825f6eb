//! Fork, wait, and the attributes of a process.

use crate::procfs::Stat;
use crate::{check, origin};
use rustix::process::Resource;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The side of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The process that forked, with the new process's id.
    Parent(u32),
    /// The new process.
    Child,
}

/// How long a thread that was joined may still be listed: join() returns before the kernel
/// removes the thread from its lists.
const ENDING: Duration = Duration::from_millis(500);

/// Forks the calling process, which must have one thread: fork(2) copies only the calling
/// thread, and locks of other threads would stay locked.
///
/// # Errors
/// `EAGAIN` or `ENOMEM` of fork(2); `EDEADLK` if there are other threads.
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

/// Returns the number of threads of this process, or 1 without /proc.
fn threads() -> u64 {
    use std::os::unix::fs::MetadataExt;
    // The link count of a directory is 2 plus one for each sub-directory.
    std::fs::metadata("/proc/self/task").map_or(1, |task| task.nlink().saturating_sub(2))
}

/// Executes `program` in this process, and returns only if execve(2) fails. The program gets
/// this process's descriptors, its environment with `variable` set, and the signal
/// dispositions and closed descriptors from before the Rust runtime changed them.
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

/// The exit code if synconce itself failed, and not the command; as of env(1).
pub const FAILED: i32 = 125;

/// Ends the process at once: no destructors, no flushing.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit never returns and accesses no memory.
    unsafe { libc::_exit(code) }
}

/// A change of state of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildChange {
    /// The child exited with this code.
    Exited(i32),
    /// The child was killed by this signal.
    Killed(i32),
    /// The child was stopped by job control, by this signal.
    Stopped(i32),
    /// The child was continued after a stop.
    Continued,
    /// The child is in a ptrace stop of any tracer, with this code: the signal, and from the
    /// ninth bit on the event.
    Trapped(i32),
}

/// The processes to wait for.
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
    /// Report exits.
    pub ends: bool,
    /// Report stops.
    pub stops: bool,
    /// Report continuations after a stop.
    pub continues: bool,
    /// Keep the change: a later call reports it again (`WNOWAIT`).
    pub peek: bool,
    /// Block until there is a change.
    pub block: bool,
    /// Include traced threads that are not children (`__WALL`).
    pub tracees: bool,
}

/// Returns the next change and the id of its process (waitid(2)).
///
/// Only children and tracees of the calling thread count (`__WNOTHREAD`). A child that another
/// thread of this process traces is reported even if stops were not requested; peek first.
///
/// # Errors
/// `ECHILD` if there is no such process.
pub fn wait(whose: Whose, options: WaitFor) -> io::Result<Option<(u32, ChildChange)>> {
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
        // SAFETY: the kernel writes one siginfo_t into `info`.
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
        libc::CLD_EXITED => ChildChange::Exited(status),
        libc::CLD_KILLED | libc::CLD_DUMPED => ChildChange::Killed(status),
        libc::CLD_STOPPED => ChildChange::Stopped(status),
        libc::CLD_CONTINUED => ChildChange::Continued,
        _ => ChildChange::Trapped(status),
    };
    Ok(Some((pid as u32, change)))
}

/// Returns the user and the system time of the children that this process has waited for, and
/// of the descendants that these have waited for (getrusage(2)).
///
/// # Errors
/// The manual page names no error that can occur here.
pub fn times_of_children() -> io::Result<[Duration; 2]> {
    // SAFETY: rusage is plain data, valid when zeroed.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage into `usage`.
    let read = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    check(libc::c_long::from(read))?;
    Ok([usage.ru_utime, usage.ru_stime]
        .map(|time| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)))
}

/// Returns the process group of `pid`, or of this process for 0. Returns `None` if the process has
/// ended, or if the group began outside this pid namespace: getpgid(2) returns 0 for such a group,
/// which `rustix::process::Pid` cannot hold.
pub fn group_of(pid: u32) -> Option<libc::pid_t> {
    // SAFETY: takes no pointers.
    let group = unsafe { libc::getpgid(pid.cast_signed()) };
    (group > 0).then_some(group)
}

/// Returns whether this process's group is the foreground group of `terminal`. A group that began
/// outside this pid namespace has no id to compare, and counts as the background.
pub fn is_in_foreground(terminal: impl AsFd) -> bool {
    // SAFETY: takes no pointers.
    let foreground = unsafe { libc::tcgetpgrp(terminal.as_fd().as_raw_fd()) };
    group_of(0) == Some(foreground)
}

/// Returns whether the calling process is in a job of a shell that can continue it: the process has
/// a controlling terminal, and its process group is not that of the leader of its session. A
/// command of a script, of a container or of script(1) is in that leader's group, unless a program
/// such as timeout(1) gave it a group of its own.
pub fn is_job_of_a_shell() -> bool {
    // SAFETY: takes no pointers.
    let (group, session) = unsafe { (libc::getpgrp(), libc::getsid(0)) };
    group != session && std::fs::File::open("/dev/tty").is_ok()
}

/// Raises the soft limit of `resource` to the hard limit (setrlimit(2)). A failure leaves the soft
/// limit as it is.
///
/// Calls libc, because rustix's `getrlimit` panics where a filter refuses prlimit64(2).
pub fn raise_soft_limit(resource: Resource) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit into `limit`.
    if unsafe { libc::getrlimit(resource as _, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the kernel reads one rlimit.
        unsafe { libc::setrlimit(resource as _, &raw const limit) };
    }
}

/// Makes the calling process the subreaper, which becomes the parent of orphaned descendants
/// (`PR_SET_CHILD_SUBREAPER`, Linux 3.4).
///
/// # Errors
/// `EINVAL` before Linux 3.4.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }))
        .map(drop)
}

/// Returns whether the calling process is a subreaper.
pub fn adopts_orphans() -> bool {
    let mut adopts: libc::c_int = 0;
    // SAFETY: the kernel writes one int into `adopts`.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut adopts, 0, 0, 0) };
    adopts != 0
}

/// Takes [`adopt_orphans`] back. The kernel would keep the attribute across execve(2).
pub fn leave_orphans() {
    // SAFETY: takes no pointers. It cannot fail where `adopt_orphans` did not.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) };
}

/// Closes every descriptor that survived this process's execve(2), which are exactly the
/// inherited ones: all others are close-on-exec. The standard descriptors become `null`;
/// `keep` stays open.
fn close_inherited(null: Option<BorrowedFd<'_>>, keep: Option<BorrowedFd<'_>>) {
    for fd in inherited_numbers() {
        if keep.is_some_and(|keep| keep.as_raw_fd() == fd) {
            continue;
        }
        match null.filter(|_| fd < 3) {
            // SAFETY: replaces an inherited descriptor, which no code here owns.
            Some(null) => unsafe { libc::dup2(null.as_raw_fd(), fd) },
            // SAFETY: as above.
            None => unsafe { libc::close(fd) },
        };
    }
}

/// Returns the descriptors that survived this process's execve(2).
pub fn inherited() -> Vec<BorrowedFd<'static>> {
    // SAFETY: no code here owns an inherited descriptor, so it stays open until
    // `give_up_inherited`. After that the number may be reused, and a use would examine the
    // wrong file.
    inherited_numbers().map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }).collect()
}

fn inherited_numbers() -> impl Iterator<Item = i32> {
    open_descriptors().into_iter().filter(|fd| {
        // SAFETY: F_GETFD only reads the descriptor table.
        let flags = unsafe { libc::fcntl(*fd, libc::F_GETFD) };
        flags != -1 && flags & libc::FD_CLOEXEC == 0
    })
}

/// Leaves the terminal's session, and closes the inherited descriptors. Otherwise the readers of
/// inherited pipes would wait for this process, too, and locks and directories would stay in use.
pub fn leave_session() {
    // setsid(2) fails only for a group leader, which a forked process is not.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    give_up_inherited(None);
}

/// Closes the inherited descriptors except `keep`, and redirects the standard ones to
/// /dev/null.
pub fn give_up_inherited(keep: Option<BorrowedFd<'_>>) {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()).ok();
    close_inherited(null.as_ref().map(AsFd::as_fd), keep);
}

/// Returns the umask from /proc, if it can be read: umask(2) reports it only by changing it, for
/// all threads.
pub fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}

/// Gives the calling thread, and the threads that it starts later, the lowest priority: nice 19,
/// and the idle I/O class (ioprio_set(2), Linux 2.6.13) if the disk's scheduler has classes.
pub fn give_way() {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3 << 13;
    let _ = rustix::process::nice(19);
    // SAFETY: takes no pointers. If it fails, the I/O keeps its normal priority.
    unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) };
}

/// Returns the numbers of all open descriptors. Listing `/proc/self/fd` makes an inode for
/// each entry, so where the kernel reports their count (the directory's size, Linux 6.2) the
/// numbers are tested from 0 up.
fn open_descriptors() -> Vec<i32> {
    /// The number of closed descriptors above which the listing is faster.
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

/// Replaces the command line of the calling process, which `ps` shows (proc(5)). What is longer
/// than the present command line is cut off. [`std::env::args`] must not be called afterwards.
///
/// # Errors
/// Those of reading and writing below /proc.
pub fn replace_command_line(words: &str) -> io::Result<()> {
    let stat = Stat::of_this_process().ok_or(io::ErrorKind::NotFound)?;
    let (start, end): (u64, u64) =
        stat.field(48).zip(stat.field(49)).ok_or(io::ErrorKind::InvalidData)?;
    // prctl(2) would need CAP_SYS_RESOURCE (PR_SET_MM_ARG_START).
    let length = usize::try_from(end.saturating_sub(start)).unwrap_or_default();
    let mut text: Vec<_> = words.bytes().take(length.saturating_sub(1)).collect();
    text.resize(length, 0);
    std::fs::File::options().write(true).open("/proc/self/mem")?.write_all_at(&text, start)
}

/// Makes the calling process and its future children run as on a 32-bit machine: uname(2) returns
/// `i686` on amd64 (personality(2)).
///
/// # Errors
/// `EINVAL` where the machine has no 32-bit mode.
pub fn emulate_32_bit() -> io::Result<()> {
    const READ: libc::c_ulong = 0xffff_ffff;
    // linux/personality.h
    const LINUX32: libc::c_ulong = 0x0008;
    // SAFETY: takes no pointers.
    let old = check(libc::c_long::from(unsafe { libc::personality(READ) }))?;
    let new = old as libc::c_ulong | LINUX32;
    // SAFETY: takes no pointers.
    check(libc::c_long::from(unsafe { libc::personality(new) })).map(drop)
}

/// Sets the calling thread's name, which `ps` and `top` show; at most 15 bytes.
pub fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the kernel reads at most 16 bytes of a terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}
