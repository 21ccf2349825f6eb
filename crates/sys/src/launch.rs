//! Starting a command under a filter.
//!
//! The child is made with `CLONE_VM | CLONE_VFORK | CLONE_FILES`: it shares our
//! memory and descriptor table until `execve` gives it tables of its own, so the
//! listener that the filter makes appears in our table without a message, and
//! nothing of ours that is close-on-exec reaches the command.
//!
//! Before the child executes, the child itself leaves the listener and its pid to the
//! front process, in the [`Takeover`]. So there is no moment at which the command runs
//! and only the supervisor could answer or find it: the supervisor may be killed any time.

mod exec_watcher;

use self::exec_watcher::ExecWatcher;
use crate::handover::Takeover;
use crate::notify::{Listener, Notification};
use crate::origin;
use crate::seccomp::{self, Instruction, Listen};
use crate::signals::Set;
use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
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
    /// The listener could not be left to the front process; the command did not start.
    Handover(io::Error),
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
    error: Option<LaunchError>,
    /// Which candidate was tried last.
    tried: usize,
}

/// What the child is given.
struct Child<'a, 'b> {
    shared: &'a mut Shared<'b>,
    takeover: &'b Takeover,
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
/// dispositions we inherited. From its execution on the process that has `takeover` as
/// well can take over.
///
/// # Errors
/// See [`LaunchError`]; no process is left behind.
pub fn launch(
    command: &Command,
    filter: Filter<'_>,
    mask: Set,
    takeover: &Takeover,
) -> Result<Launched, LaunchError> {
    let mut shared = Shared::new(command, filter, mask);
    let watch = || ExecWatcher::start(Arc::clone(&shared.stage), Arc::clone(&takeover.handover));
    let exec_watcher = filter.stops_exec.then(watch).transpose().map_err(LaunchError::Clone)?;
    let cloned = clone_and_wait(&mut Child { shared: &mut shared, takeover });
    let first_call = exec_watcher.and_then(ExecWatcher::finish);
    let pid = cloned.map_err(LaunchError::Clone)?;
    let fd = shared.stage.listener.load(SeqCst);
    // SAFETY: the child stored a descriptor that its filter made in the shared
    // table; nobody else owns it.
    let listener = (fd >= 0).then(|| Listener::from(unsafe { OwnedFd::from_raw_fd(fd) }));
    if let Some(error) = shared.error {
        reap(pid);
        return Err(error);
    }
    let no_new_privs = shared.no_new_privs;
    let executed = command.candidates[shared.tried].clone();
    Ok(Launched { pid, listener, executed, first_call, no_new_privs })
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
    // SAFETY: waits for our own child, without a status.
    unsafe { libc::waitpid(pid as i32, ptr::null_mut(), libc::__WALL) };
}

fn clone_and_wait(given: &mut Child<'_, '_>) -> io::Result<u32> {
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
    // it, because CLONE_VFORK suspends us until it executes or exits; if we are
    // killed meanwhile, our memory lives as long as the child uses it. `child` only
    // reads and writes what it is given and makes async-signal-safe calls. The word
    // that the kernel clears meanwhile is in `Shared`.
    let pid = unsafe {
        libc::clone(
            child,
            stack.as_mut_ptr().add(STACK / size_of::<u128>()).cast(),
            flags,
            ptr::from_mut(given).cast(),
            ptr::null_mut::<libc::pid_t>(),
            ptr::null_mut::<libc::c_void>(),
            given.shared.stage.shares_memory.as_ptr(),
        )
    };
    let error = io::Error::last_os_error();
    before.set();
    if pid == -1 { Err(error) } else { Ok(pid as u32) }
}

extern "C" fn child(given: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent passed its Child and sleeps meanwhile.
    let Child { shared, takeover } = unsafe { &mut *given.cast::<Child<'_, '_>>() };
    // Without CLONE_SIGHAND the dispositions are our own copy.
    origin::restore_dispositions();
    let ready = install(shared).map_err(LaunchError::Filter);
    if let Err(error) = ready.and_then(|()| hand_over(shared, takeover)) {
        shared.error = Some(error);
        return 125;
    }
    shared.mask.set();
    let errno = execute(shared);
    takeover.handover.note_command(None);
    shared.error = Some(LaunchError::Exec(io::Error::from_raw_os_error(errno)));
    125
}

/// Leaves to the front process what it needs when the supervisor is killed from now on.
fn hand_over(shared: &Shared<'_>, takeover: &Takeover) -> Result<(), LaunchError> {
    let listener = shared.stage.listener.load(SeqCst);
    if listener >= 0 {
        // SAFETY: the filter made the descriptor in our table; it stays open.
        let listener = unsafe { BorrowedFd::borrow_raw(listener) };
        takeover.mailbox.leave(listener).map_err(LaunchError::Handover)?;
    }
    takeover.handover.note_command(Some(std::process::id()));
    Ok(())
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
