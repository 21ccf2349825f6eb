//! Starts a command under a filter.
//!
//! The child is made with `CLONE_VM | CLONE_VFORK | CLONE_FILES`: it shares the parent's
//! memory and descriptor table until `execve` gives it its own. So the listener that the
//! filter makes appears in the parent's table without a message, and the command inherits no
//! close-on-exec descriptor.
//!
//! Before the child calls `execve`, it passes the listener and its pid to the frontend, by the
//! [`Takeover`]. So from the command's first instruction on, the frontend can answer and find
//! the command if the supervisor is killed.

use crate::handover::Takeover;
use crate::notify::Listener;
use crate::origin;
use crate::process::FAILED;
use crate::seccomp::{self, Instruction, Listen};
use crate::signals::SignalSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr;

/// What to execute.
#[derive(Debug)]
pub struct Executed {
    /// Paths to try in order: [`crate::search::candidates`].
    pub candidates: Vec<CString>,
    /// The argument vector, beginning with the command's name.
    pub arguments: Vec<CString>,
    /// The environment.
    pub environment: Vec<CString>,
}

/// The filter under which a command is started.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// Whether the filter gets a listener.
    pub listen: Listen,
    /// The filter's instructions.
    pub program: &'a [Instruction],
}

/// A started command.
#[derive(Debug)]
pub struct Launched {
    /// The command's process id.
    pub pid: u32,
    /// The filter's listener, unless the filter is sealed.
    pub listener: Option<Listener>,
    /// The candidate that was executed.
    pub executed: CString,
    /// Whether no_new_privs was set, for lack of `CAP_SYS_ADMIN`.
    pub no_new_privs: bool,
}

/// Why a command was not started.
#[derive(Debug)]
pub enum LaunchError {
    /// The child could not be created.
    Clone(io::Error),
    /// The filter could not be installed; the command did not start.
    Filter(io::Error),
    /// The listener could not be passed to the frontend; the command did not start.
    Handover(io::Error),
    /// No candidate could be executed.
    Exec(io::Error),
}

const STACK: usize = 64 * 1024;

/// Data that the child reads, and to which it writes its result. The child shares the parent's
/// memory, and the parent is suspended until the child has executed or exited.
struct LaunchMemory<'a> {
    candidates: Vec<*const libc::c_char>,
    arguments: Vec<*const libc::c_char>,
    /// `/bin/sh` with a free entry for the path, for files without a header (`ENOEXEC`).
    shell_arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    filter: Filter<'a>,
    mask: SignalSet,
    /// The child's listener; -1 without one.
    listener: i32,
    no_new_privs: bool,
    error: Option<LaunchError>,
    /// The index of the candidate that was tried last.
    tried: usize,
}

/// The argument of the child.
struct Child<'a, 'b> {
    shared: &'a mut LaunchMemory<'b>,
    takeover: &'b Takeover,
}

/// Starts `command` under `filter`, with the signal mask `mask` and the inherited
/// dispositions. From the command's execution on, the frontend, which shares `takeover`, can
/// take over.
///
/// # Errors
/// See [`LaunchError`]; no process is left behind.
pub fn launch(
    command: &Executed,
    filter: Filter<'_>,
    mask: SignalSet,
    takeover: &Takeover,
) -> Result<Launched, LaunchError> {
    let mut shared = LaunchMemory::new(command, filter, mask);
    let cloned = clone_and_wait(&mut Child { shared: &mut shared, takeover });
    let pid = cloned.map_err(LaunchError::Clone)?;
    let fd = shared.listener;
    // SAFETY: the child stored a descriptor that its filter made in the shared table; it has
    // no other owner.
    let listener = (fd >= 0).then(|| Listener::from(unsafe { OwnedFd::from_raw_fd(fd) }));
    if let Some(error) = shared.error {
        reap(pid);
        return Err(error);
    }
    let no_new_privs = shared.no_new_privs;
    let executed = command.candidates[shared.tried].clone();
    Ok(Launched { pid, listener, executed, no_new_privs })
}

/// Executes `command` in this process, with the inherited dispositions. Returns only the
/// error.
pub fn execute_in_place(command: &Executed) -> io::Error {
    let filter = Filter { listen: Listen::No, program: &[] };
    let mut shared = LaunchMemory::new(command, filter, SignalSet::from_numbers(&[]));
    origin::restore_dispositions();
    io::Error::from_raw_os_error(execute(&mut shared))
}

impl<'a> LaunchMemory<'a> {
    fn new(command: &Executed, filter: Filter<'a>, mask: SignalSet) -> Self {
        Self {
            candidates: command.candidates.iter().map(|path| path.as_ptr()).collect(),
            arguments: pointers(&command.arguments),
            shell_arguments: shell_arguments(&command.arguments),
            environment: pointers(&command.environment),
            filter,
            mask,
            listener: -1,
            no_new_privs: false,
            error: None,
            tried: 0,
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

fn shell_arguments(arguments: &[CString]) -> Vec<*const libc::c_char> {
    let rest = arguments.iter().skip(1).map(|argument| argument.as_ptr());
    [c"/bin/sh".as_ptr(), ptr::null()].into_iter().chain(rest).chain([ptr::null()]).collect()
}

fn reap(pid: u32) {
    // SAFETY: waits for a child of this process, without a status.
    unsafe { libc::waitpid(pid as i32, ptr::null_mut(), libc::__WALL) };
}

fn clone_and_wait(given: &mut Child<'_, '_>) -> io::Result<u32> {
    // Not zeroed, so that only the pages that are used are allocated.
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD;
    let mut all = SignalSet::from_numbers(&[]);
    // SAFETY: the set is initialised. Every signal is blocked while the child borrows this
    // memory, as in posix_spawn.
    unsafe { libc::sigfillset(&raw mut all.0) };
    let before = all.block();
    // SAFETY: the stack is owned here, is 16-byte aligned and outlives the child's use of it,
    // because CLONE_VFORK suspends the parent until the child executes or exits; if the parent
    // is killed meanwhile, its memory lives as long as the child uses it. `child` only reads
    // and writes its argument and makes async-signal-safe calls.
    let pid = unsafe {
        libc::clone(
            child,
            stack.as_mut_ptr().add(STACK / size_of::<u128>()).cast(),
            flags,
            ptr::from_mut(given).cast(),
        )
    };
    let error = io::Error::last_os_error();
    before.set();
    if pid == -1 { Err(error) } else { Ok(pid as u32) }
}

extern "C" fn child(given: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent passed its Child and is suspended meanwhile.
    let Child { shared, takeover } = unsafe { &mut *given.cast::<Child<'_, '_>>() };
    // Without CLONE_SIGHAND the child has its own copy of the dispositions.
    origin::restore_dispositions();
    // Found by the parent if a filter of others kills this process in seccomp(2).
    shared.error = Some(LaunchError::Filter(io::Error::from_raw_os_error(libc::EPERM)));
    let ready = install(shared).map_err(LaunchError::Filter);
    shared.error = None;
    if let Err(error) = ready.and_then(|()| hand_over(shared, takeover)) {
        shared.error = Some(error);
        return FAILED;
    }
    shared.mask.set();
    let errno = execute(shared);
    takeover.handover.note_command(None);
    shared.error = Some(LaunchError::Exec(io::Error::from_raw_os_error(errno)));
    FAILED
}

/// Passes to the frontend what it needs if the supervisor is killed from now on.
fn hand_over(shared: &LaunchMemory<'_>, takeover: &Takeover) -> Result<(), LaunchError> {
    let listener = shared.listener;
    if listener >= 0 {
        // SAFETY: the filter made the descriptor in the shared table; it stays open.
        let listener = unsafe { BorrowedFd::borrow_raw(listener) };
        takeover.mailbox.leave(listener).map_err(LaunchError::Handover)?;
    }
    takeover.handover.note_command(Some(std::process::id()));
    Ok(())
}

/// Installs the filter. Sets no_new_privs only if the kernel demands it.
fn install(shared: &mut LaunchMemory<'_>) -> io::Result<()> {
    let listen = shared.filter.listen;
    let installed = match seccomp::install(shared.filter.program, listen) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            seccomp::set_no_new_privs()?;
            shared.no_new_privs = true;
            seccomp::install(shared.filter.program, listen)
        }
        other => other,
    };
    shared.listener = installed?.map_or(-1, IntoRawFd::into_raw_fd);
    Ok(())
}

/// Executes the first candidate that can be executed. Returns the errno that execvp(3) would.
fn execute(shared: &mut LaunchMemory<'_>) -> i32 {
    let (mut result, mut denied) = (libc::ENOENT, false);
    for (index, path) in shared.candidates.iter().enumerate() {
        shared.tried = index;
        // SAFETY: every vector ends with a null pointer and its strings live on.
        unsafe { libc::execve(*path, shared.arguments.as_ptr(), shared.environment.as_ptr()) };
        match io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL) {
            libc::ENOEXEC => {
                shared.shell_arguments[1] = *path;
                let arguments = shared.shell_arguments.as_ptr();
                // SAFETY: as above.
                unsafe {
                    libc::execve(c"/bin/sh".as_ptr(), arguments, shared.environment.as_ptr())
                };
                return libc::ENOEXEC;
            }
            // As in execvp(3): an unusable entry does not end the search, but its error is
            // kept.
            libc::EACCES => denied = true,
            error @ (libc::ENOENT
            | libc::ENOTDIR
            | libc::ENODEV
            | libc::ESTALE
            | libc::ETIMEDOUT) => result = error,
            other => return other,
        }
    }
    if denied { libc::EACCES } else { result }
}
