//! Runs a command in a tree, with the mounts that chroot builders expect.
//!
//! - `/proc` belongs to a new pid namespace: when the command ends, the kernel kills all its
//!   remaining processes, so that nothing writes any more.
//! - `/sys` is the host's, read-only.
//! - `/dev` is in memory: null, zero, full, random, urandom, tty, and for root console; a
//!   devpts of its own with ptmx, shm, and the links to `/proc/self/fd`. The tree's own `/dev`
//!   is hidden and not changed.
//! - If standard input and output are a terminal, the command has a terminal of its own in that
//!   devpts, which is also its console.
//! - `/etc/resolv.conf` is the host's, read-only, mounted over the tree's own. If the tree has
//!   no such file, or has a link whose target is missing, an empty file is made there (at the
//!   link's target) while the command runs, and removed afterwards.
//! - `/etc/hosts` is a file in memory: the host's, with localhost and the host name if they are
//!   missing there. The command can write to the file; what it writes is not in the tree.
//! - `/run` and `/tmp` are the tree's own, as in a chroot: files that the command writes there
//!   are kept.
//! - Mount points that had to be made are removed when the command has ended, and the times of
//!   their parent directories are restored. Within a bind mount they stay.
//! - The IPC and UTS namespaces are new: System V IPC, POSIX message queues, and the host name,
//!   which is at first the host's. Users are the host's. The network is the host's, or a namespace
//!   of its own with a loopback interface alone.
//! - Root lacks the capabilities that change the whole machine, such as its clock.
//!
//! The processes: the caller waits and forwards signals. The caller's child is the init of the
//! pid namespace and reaps. The command is the init's child. With a terminal of its own, the
//! command is the terminal's foreground job, and the init leads the session. Otherwise the command
//! is in the caller's process group.

mod capabilities;
mod environment;
mod furnish;
mod hosts;
mod init;
mod places;
mod report;
mod terminal;
mod user;

pub use self::environment::PATH;
use self::places::{MountPointKind, MountPoints};
use self::report::{ChildReport, Reports, Teller};
use self::terminal::{Devpts, Terminal};
use crate::limits;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::system::sethostname;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use synconce_durable::error::{Context, Error};
use synconce_sys::namespace::{UnshareFlags, raise_loopback, unshare};
use synconce_sys::origin;
use synconce_sys::process::{
    Side, WaitFor, Whose, exit_now, fork, give_up_inherited, is_job_of_a_shell, wait,
};
use synconce_sys::signals::{self, Received, SignalReader, SignalSet, passed_on};

/// What to execute, where, and as which user. The JSON form can hold any path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnterSpec {
    /// The root: a directory, mounted or not.
    pub root: OsString,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// A user of the tree by name or number, optionally with `:` and a group; root by default.
    /// A number that the tree's `/etc/passwd` lacks is also used as the group's number.
    #[serde(default)]
    pub user: Option<String>,
    /// Files and directories of the host to bind-mount, in this order.
    #[serde(default)]
    pub binds: Vec<Bind>,
    /// The command's working directory in the tree; `/` by default.
    #[serde(default)]
    pub directory: Option<OsString>,
    /// The host name; the host's by default.
    #[serde(default)]
    pub hostname: Option<String>,
    /// The network.
    #[serde(default)]
    pub network: Network,
    /// The architecture that uname(2) returns.
    #[serde(default)]
    pub personality: Personality,
    /// How long the command may run.
    #[serde(default)]
    pub timeout: Option<Duration>,
    /// Control groups in which all processes of the command are.
    #[serde(default)]
    pub groups: Vec<OsString>,
}

/// The architecture that uname(2) returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Personality {
    /// The machine's.
    #[default]
    Linux,
    /// That of a 32-bit machine.
    Linux32,
}

/// The network of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// The host's.
    #[default]
    Host,
    /// A new network namespace, which has only a loopback interface. The interface is up.
    None,
}

/// A directory or file of the host to mount in the tree, with all mounts below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// The path on the host.
    pub source: OsString,
    /// The path in the tree.
    pub target: OsString,
    /// Whether the mount is read-only.
    #[serde(default)]
    pub read_only: bool,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The command exited with this code.
    Exited(i32),
    /// The command was killed by this signal.
    Killed(i32),
    /// The command was not started. The words say which act failed, on which object, and why.
    Refused(String),
    /// The command was never started: no such program (`ENOENT`: exit code 127), or the
    /// program cannot be executed (126).
    NotExecuted {
        /// The command's name.
        command: String,
        /// The errno of execve(2).
        errno: i32,
    },
}

/// The signal that is reported as the end of a command whose time was over, however the command
/// ended after SIGTERM.
pub const TIME_IS_OVER: i32 = Signal::ALARM.as_raw();
/// How long a command may take to end after SIGTERM, as with `docker stop`.
const GRACE: Duration = Duration::from_secs(10);

/// Executes the command of `spec` in its root, and waits for its end. The command gets the
/// environment of the calling process, and the variables of its user and PATH where the environment
/// lacks them. The calling process must have one thread and `CAP_SYS_ADMIN`. Afterwards it must
/// only end, as the command did: its mounts, its children's pid namespace and its signal mask stay
/// changed. If its parent ends, it is killed, with all processes inside.
///
/// # Errors
/// Something could not be mounted or made, or the user is unknown. The command was not
/// started.
pub fn enter(spec: &EnterSpec) -> Result<Ending, Error> {
    let root = Path::new(&spec.root);
    origin::forget_runtime_stdio();
    capabilities::drop_machine_wide().on("cannot drop capabilities for", root)?;
    set_parent_process_death_signal(Some(Signal::KILL)).on("cannot follow the parent of", root)?;
    for group in &spec.groups {
        limits::join(Path::new(group))?;
    }
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    unshare(flags | UnshareFlags::NEWUTS).on("cannot make namespaces for", root)?;
    if spec.network == Network::None {
        unshare(UnshareFlags::NEWNET).on("cannot make a network namespace for", root)?;
        raise_loopback().on("cannot raise the loopback interface of", root)?;
    }
    if let Some(name) = &spec.hostname {
        sethostname(name.as_bytes()).on("cannot set the host name of", root)?;
    }
    let private = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", private).on("cannot make mounts private below", Path::new("/"))?;
    let mut places = MountPoints::open(root)?;
    for (path, kind) in wanted_places(spec)? {
        places.make(&path, kind)?;
    }
    let devpts = Devpts::new(furnish::new_devpts()?)?;
    let before = SignalSet::from_numbers(&passed_on()).block();
    // The signals stay blocked: a signal that was meant for the command must not kill this
    // process.
    let mut limit = TimeLimit { is_set: spec.timeout.is_some(), is_over: false };
    let ending = attended(spec, devpts, before, &mut limit).on("cannot run a command in", root)?;
    // All processes inside have ended.
    drop(places);
    match ending {
        Ok(_) if limit.is_over => Ok(Ending::Killed(TIME_IS_OVER)),
        other => other.map_err(|why| Error::new("cannot enter", root, io::Error::other(why))),
    }
}

/// Returns the paths of mount points that lie in the tree itself.
fn wanted_places(spec: &EnterSpec) -> Result<Vec<(PathBuf, MountPointKind)>, Error> {
    let mut wanted: Vec<(PathBuf, MountPointKind)> =
        ["/proc", "/sys", "/dev"].map(|path| (path.into(), MountPointKind::Directory)).into();
    wanted.push((hosts::HOSTS.into(), MountPointKind::File));
    if furnish::has_resolver() {
        wanted.push((furnish::RESOLVER.into(), MountPointKind::File));
    }
    for bind in &spec.binds {
        let target = Path::new(&bind.target);
        // Mount points below /dev, /proc and /sys are made in the mounts there.
        if !["/proc", "/sys", "/dev"].iter().any(|mounted| target.starts_with(mounted)) {
            wanted.push((target.to_owned(), MountPointKind::from_path(Path::new(&bind.source))?));
        }
    }
    Ok(wanted)
}

/// Starts the init and attends it. The inner error is what the init reported.
fn attended(
    spec: &EnterSpec,
    devpts: Devpts,
    before: SignalSet,
    limit: &mut TimeLimit,
) -> io::Result<Result<Ending, String>> {
    let reader = SignalReader::new(&SignalSet::from_numbers(&passed_on()))?;
    let (reports, telling) = io::pipe()?;
    let (life, alive) = io::pipe()?;
    match fork()? {
        Side::Child => {
            drop((reports, alive, reader));
            init::run(spec, before, devpts, (&Teller::new(telling), &life));
            exit_now(0)
        }
        Side::Parent(pid) => {
            drop((telling, life));
            let mut terminal = devpts.outside()?;
            // A pipe must close, and a lock be free, when the command closes its copy.
            give_up_inherited(Some(rustix::stdio::stderr()));
            if let Some(time) = spec.timeout {
                signals::alarm_after(time);
            }
            let ending = attend(pid, (reports, alive), (&reader, limit), &mut terminal);
            if let Some(terminal) = &mut terminal {
                terminal.restore(&reader, |terminal, got| pass_on(got, pid, Some(terminal)));
                if let Ok(Ok(Ending::Killed(signal))) = &ending {
                    terminal.signal_the_job(*signal);
                }
            }
            wait(Whose::Id(pid), WaitFor { ends: true, block: true, ..WaitFor::default() })?;
            ending
        }
    }
}

/// Forwards signals until the init has reported how the command ended and has exited.
fn attend(
    pid: u32,
    (reports, alive): (PipeReader, PipeWriter),
    (signals, limit): (&SignalReader, &mut TimeLimit),
    terminal: &mut Option<Terminal>,
) -> io::Result<Result<Ending, String>> {
    let (mut reports, mut alive) = (Reports::new(reports), Some(alive));
    let mut ending = None;
    loop {
        let has_more = reports.has_more();
        let fds = [reports.descriptor().as_fd(), signals.as_fd()];
        let is_readable = match terminal {
            Some(terminal) => terminal.wait(fds, has_more)?[0],
            None if has_more => true,
            None => readable(fds)?,
        };
        while let Some(received) = signals.next() {
            if ending.is_none() || !TimeLimit::is_reached(&received) {
                limit.act_on(received, pid, terminal.as_mut());
            }
        }
        let heard = has_more || is_readable;
        match heard.then(|| reports.next()).transpose()? {
            None => {}
            Some(None) => {
                // The init of the pid namespace was killed, and the command with it: the
                // command did not finish its work.
                let killed = || Ok(Ending::Killed(Signal::KILL.as_raw()));
                return Ok(ending.unwrap_or_else(killed));
            }
            Some(Some(ChildReport::Stopped(signal))) if !limit.follows_stops() => {
                undo_key(signal, pid, terminal.as_ref());
            }
            Some(Some(ChildReport::Stopped(signal))) => {
                if let Some(terminal) = terminal {
                    terminal.restore(signals, |it, got| limit.act_on(got, pid, Some(it)));
                }
                if !limit.is_over {
                    signals::stop_by(signal);
                }
                signals::send(pid, Signal::CONT.as_raw());
            }
            // The first report is the cause of later ones.
            Some(Some(report)) => {
                ending = ending.or_else(|| Some(report.into_ending()));
                if let Some(terminal) = terminal {
                    // The command has ended: no signal can reach it.
                    let forget = |terminal: &mut Terminal, got: Received| note(&got, terminal);
                    terminal.show_the_rest(signals, forget);
                    // The init, which waits for this, ends now.
                    drop(alive.take());
                }
            }
        }
    }
}

/// Continues the command of the init `pid` if Ctrl-Z stopped the command. Ctrl-Z does not stop a
/// job that no shell can continue (setpgid(2)); on a terminal of its own the command is another
/// job.
fn undo_key(signal: i32, pid: u32, terminal: Option<&Terminal>) {
    if terminal.is_some() && signal == Signal::TSTP.as_raw() {
        signals::send(pid, Signal::CONT.as_raw());
    }
}

/// The end of a command after its time.
struct TimeLimit {
    /// Whether the command may run for a limited time only.
    is_set: bool,
    /// Whether the time is over and the command has been sent SIGTERM.
    is_over: bool,
}

impl TimeLimit {
    /// Returns whether this process stops when the command stops. While this process is stopped, it
    /// cannot end the command after its time.
    fn follows_stops(&self) -> bool {
        !self.is_set || is_job_of_a_shell()
    }

    /// Returns whether the signal is that of the timer.
    fn is_reached(received: &Received) -> bool {
        received.signal == TIME_IS_OVER && !received.by_process
    }

    /// Ends the command of the init `pid` at the timer's signal; passes another signal on.
    fn act_on(&mut self, received: Received, pid: u32, terminal: Option<&mut Terminal>) {
        if !Self::is_reached(&received) {
            // If this process has followed a stop, [`attend`] sends the SIGCONT.
            if received.signal != Signal::CONT.as_raw() || !self.follows_stops() {
                pass_on(received, pid, terminal);
            }
            return;
        }
        if let Some(terminal) = terminal {
            terminal.end_soon();
        }
        if self.is_over {
            // The init of a pid namespace; the kernel ends all processes in it.
            signals::send(pid, Signal::KILL.as_raw());
            return;
        }
        self.is_over = true;
        signals::send(pid, Signal::TERM.as_raw());
        signals::send(pid, Signal::CONT.as_raw());
        signals::alarm_after(GRACE);
    }
}

/// Waits until one of `fds` is readable. Returns whether it is the first.
fn readable(fds: [BorrowedFd<'_>; 2]) -> io::Result<bool> {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
    Ok(!fds[0].revents().is_empty())
}

/// Passes a signal on to the init `pid`. A signal of the caller's terminal reaches the command by
/// itself, unless the command has a terminal of its own.
fn pass_on(received: Received, pid: u32, terminal: Option<&mut Terminal>) {
    match terminal {
        Some(terminal) => {
            note(&received, terminal);
            if received.signal != Signal::WINCH.as_raw() {
                signals::send(pid, received.signal);
            }
        }
        None if received.is_to_this_process() => drop(signals::send(pid, received.signal)),
        None => {}
    }
}

/// Does what a signal means for the terminal.
fn note(received: &Received, terminal: &mut Terminal) {
    let ends = [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT];
    if received.signal == Signal::WINCH.as_raw() {
        terminal.resize();
    } else if ends.iter().any(|end| received.signal == end.as_raw()) {
        terminal.end_soon();
    }
}
