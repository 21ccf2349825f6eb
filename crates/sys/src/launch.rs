//! Starting a command under a filter.
//!
//! The child is made with `CLONE_VM | CLONE_VFORK | CLONE_FILES`: it shares our
//! memory and descriptor table until `execve` gives it tables of its own, so the
//! listener that the filter makes appears in our table without a message, and
//! nothing of ours that is close-on-exec reaches the command.

mod usher;

use self::usher::Usher;
use crate::notify::{Listener, Notification};
use crate::origin;
use crate::seccomp::{self, Instruction, Listen};
use crate::signals::Set;
use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

/// What to execute.
#[derive(Debug)]
pub struct Command {
    /// Paths to try in order, as `execvp(3)` makes them from PATH.
    pub candidates: Vec<CString>,
    /// The argument vector, the name first.
    pub arguments: Vec<CString>,
    /// The environment.
    pub environment: Vec<CString>,
}

/// The filter that a command is started under.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// Whether a listener is wanted.
    pub supervised: bool,
    /// Whether it is told of executions, the first one among them.
    pub stops_exec: bool,
    /// The filter.
    pub program: &'a [Instruction],
}

/// A started command.
#[derive(Debug)]
pub struct Launched {
    /// Its process id.
    pub pid: u32,
    /// The listener of its filter, unless it is sealed.
    pub listener: Option<Listener>,
    /// Which of the candidates it is.
    pub executed: CString,
    /// A call that it made already and that waits for its answer.
    pub first_call: Option<Notification>,
    /// Whether no_new_privs had to be set, for want of `CAP_SYS_ADMIN`.
    pub no_new_privs: bool,
}

/// Why a command was not started.
#[derive(Debug)]
pub enum LaunchError {
    /// No child could be made.
    Clone(io::Error),
    /// The filter could not be installed; the command did not start.
    Filter(io::Error),
    /// Nothing could be executed.
    Exec(io::Error),
}

const STACK: usize = 64 * 1024;

/// What the child works on and writes its outcome to. It shares our memory, and
/// we sleep until it has executed or exited.
struct Shared<'a> {
    candidates: Vec<*const libc::c_char>,
    arguments: Vec<*const libc::c_char>,
    /// `/bin/sh` with room for the path, for files without a header (`ENOEXEC`).
    shell_arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    filter: Filter<'a>,
    mask: Set,
    stage: Arc<Stage>,
    no_new_privs: bool,
    filter_error: i32,
    exec_error: i32,
    /// Which candidate was tried last.
    tried: usize,
}

/// How far the child has come, for a thread that looks on. glibc's clone(3) takes the
/// flag; musl's refuses it from 1.2.5 on.
struct Stage {
    /// Its listener; -1 as long as there is none.
    listener: AtomicI32,
    /// Not 0 as long as it shares our memory (`CLONE_CHILD_CLEARTID`): the kernel
    /// clears it when the child leaves that memory (`mm_release` in kernel/fork.c),
    /// before the first call of the executed program.
    shares_memory: AtomicI32,
}

impl Stage {
    fn has_executed(&self) -> bool {
        self.shares_memory.load(SeqCst) == 0
    }
}

/// Starts `command` under `filter`, with the signal mask `mask` and the
/// dispositions we inherited.
///
/// # Errors
/// See [`LaunchError`]; no process is left behind.
pub fn launch(command: &Command, filter: Filter<'_>, mask: Set) -> Result<Launched, LaunchError> {
    let mut shared = Shared::new(command, filter, mask);
    let usher = filter.stops_exec.then(|| Usher::start(Arc::clone(&shared.stage)));
    let usher = usher.transpose().map_err(LaunchError::Clone)?;
    let cloned = clone_and_wait(&mut shared);
    let first_call = usher.and_then(Usher::finish);
    let pid = cloned.map_err(LaunchError::Clone)?;
    let fd = shared.stage.listener.load(SeqCst);
    // SAFETY: the child stored a descriptor that its filter made in the shared
    // table; nobody else owns it.
    let listener = (fd >= 0).then(|| Listener::from(unsafe { OwnedFd::from_raw_fd(fd) }));
    if shared.filter_error == 0 && shared.exec_error == 0 {
        let no_new_privs = shared.no_new_privs;
        let executed = command.candidates[shared.tried].clone();
        return Ok(Launched { pid, listener, executed, first_call, no_new_privs });
    }
    reap(pid);
    Err(match shared.filter_error {
        0 => LaunchError::Exec(io::Error::from_raw_os_error(shared.exec_error)),
        errno => LaunchError::Filter(io::Error::from_raw_os_error(errno)),
    })
}

/// Executes `command` in our place, with the dispositions we inherited. Returns
/// only the error.
pub fn execute_in_place(command: &Command) -> io::Error {
    let filter = Filter { supervised: false, stops_exec: false, program: &[] };
    let mut shared = Shared::new(command, filter, Set::of(&[]));
    origin::restore_dispositions();
    io::Error::from_raw_os_error(execute(&mut shared))
}

impl<'a> Shared<'a> {
    fn new(command: &Command, filter: Filter<'a>, mask: Set) -> Self {
        Self {
            candidates: command.candidates.iter().map(|path| path.as_ptr()).collect(),
            arguments: pointers(&command.arguments),
            shell_arguments: shell_arguments(&command.arguments),
            environment: pointers(&command.environment),
            filter,
            mask,
            stage: Arc::new(Stage {
                listener: AtomicI32::new(-1),
                shares_memory: AtomicI32::new(1),
            }),
            no_new_privs: false,
            filter_error: 0,
            exec_error: 0,
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
    // SAFETY: waits for our own child, without a status.
    unsafe { libc::waitpid(pid as i32, ptr::null_mut(), libc::__WALL) };
}

fn clone_and_wait(shared: &mut Shared<'_>) -> io::Result<u32> {
    // Not zeroed, so that only the pages that are used come into being.
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let flags = libc::CLONE_VM
        | libc::CLONE_VFORK
        | libc::CLONE_FILES
        | libc::CLONE_CHILD_CLEARTID
        | libc::SIGCHLD;
    let mut all = Set::of(&[]);
    // SAFETY: the set is initialised. Every signal is blocked while the child
    // borrows our memory, as posix_spawn does.
    unsafe { libc::sigfillset(&raw mut all.0) };
    let before = all.block();
    // SAFETY: the stack is ours, 16-byte aligned and outlives the child's use of
    // it, because CLONE_VFORK suspends us until it executes or exits; `child`
    // only reads and writes `Shared` and makes async-signal-safe calls. The word
    // that the kernel clears meanwhile is in `Shared` too.
    let pid = unsafe {
        libc::clone(
            child,
            stack.as_mut_ptr().add(STACK / size_of::<u128>()).cast(),
            flags,
            ptr::from_mut(shared).cast(),
            ptr::null_mut::<libc::pid_t>(),
            ptr::null_mut::<libc::c_void>(),
            shared.stage.shares_memory.as_ptr(),
        )
    };
    let error = io::Error::last_os_error();
    before.set();
    if pid == -1 { Err(error) } else { Ok(pid as u32) }
}

extern "C" fn child(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent passed its Shared and sleeps meanwhile.
    let shared = unsafe { &mut *shared.cast::<Shared<'_>>() };
    // Without CLONE_SIGHAND the dispositions are our own copy.
    origin::restore_dispositions();
    if let Err(error) = install(shared) {
        shared.filter_error = error.raw_os_error().unwrap_or(libc::EINVAL);
        return 125;
    }
    shared.mask.set();
    shared.exec_error = execute(shared);
    125
}

/// Installs the filter, setting no_new_privs only where the kernel asks for it.
fn install(shared: &mut Shared<'_>) -> io::Result<()> {
    let listen = if shared.filter.supervised { Listen::Yes } else { Listen::No };
    let installed = match seccomp::install(shared.filter.program, listen) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            seccomp::set_no_new_privs()?;
            shared.no_new_privs = true;
            seccomp::install(shared.filter.program, listen)
        }
        other => other,
    };
    shared.stage.listener.store(installed?.map_or(-1, IntoRawFd::into_raw_fd), SeqCst);
    Ok(())
}

/// Executes the first candidate that can be; returns the errno that
/// `execvp(3)` would.
fn execute(shared: &mut Shared<'_>) -> i32 {
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
            // As execvp: an unusable entry does not end the search, but is remembered.
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
